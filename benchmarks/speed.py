"""How fast is it? Measures everything that docs/performance.md says, on whatever device it is on.

    python benchmarks/speed.py --out experiments/results/speed.jsonl#h200
    python benchmarks/speed.py --table experiments/results/speed.jsonl --into docs/performance.md

The first command makes a folder of photographs, then times (a) a pipeline in the style of the field's released
code, (b) Holotype's exact mode and (c) its token cache, for SimGCD and RPC, the trunk alone against a matrix
product, a cached step of every method, the stages that train on images, and clustering. The file is written after
every part, and parts that are run later (`--only`) join it. The second command prints the tables of such files and
puts them into a document.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import GeneratorType
from typing import Any

import torch

from holotype.errors import InputError
from holotype.utils.device import cpu_count
from loops import Bench
from measure import (
    EFFORTS,
    EMBEDDED_SIZE,
    IMAGENET_100,
    Effort,
    World,
    command,
    facts,
    has_record,
    make_photographs,
    one_sentence,
    read_record,
    read_records,
    script_parser,
    write_record,
)
from parts import PARTS
from speed_tables import insert, tables

ALIKE = (
    "hardware",
    "torch",
    "commit",
    "arch",
    "image_size",
    "batch",
    "k",
    "n_images",
    "cache_views",
    "quick",
)
"""What must be equal for a part to join a file of parts."""
KEYS = (*ALIKE, "command", "parts", "costs", "commands")
"""Of a record."""


@dataclass(frozen=True)
class Setting:
    """What is measured."""

    n_images: int
    arch: str
    image_size: int
    batch: int
    k: int
    cache_views: str


DEFAULTS = {
    "cuda": Setting(5994, "vit_base_patch16_224", 224, 128, 200, "16+8"),
    "cpu": Setting(512, "embedded", EMBEDDED_SIZE, 64, 200, "4+2"),
}
"""Unless flags say otherwise; 5,994 images and 200 categories are CUB's."""


def settings(given: argparse.Namespace, default: Setting) -> Setting:
    """The flags that were given, and the defaults for the others."""
    flags = {name: getattr(given, name) for name in asdict(default)}
    if given.arch and given.image_size is None:
        flags["image_size"] = EMBEDDED_SIZE if given.arch == "embedded" else 224
    for name, value in flags.items():
        if isinstance(value, int) and value < 1:
            raise InputError(f"--{name.replace('_', '-')} is {value}; give a positive number.")
    return replace(default, **{name: value for name, value in flags.items() if value is not None})


def make_parser() -> argparse.ArgumentParser:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--out", type=Path, default=Path("results/speed.json"), help="file for the figures")
    add("--only", default=",".join(PARTS), help=f"parts to measure, of {','.join(PARTS)}")
    add("--quick", action="store_true", help="fewer steps: rougher figures in a third of the time")
    add("--full", action="store_true", help="k-means in its full size on a CPU too: 100 starts")
    add("--device", choices=("auto", "cuda", "cpu"), default="auto", help="where to compute")
    add("--n-images", type=int, help="photographs to make (5,994 as in CUB on a GPU, 512 on a CPU)")
    add("--images", type=Path, help="folder of images to enlarge; by default the embedded sample")
    add("--arch", help="a network with random weights, by timm's name or vit_small_patch14_224; or embedded")
    add("--image-size", type=int, help="side of the network's input (224, embedded: 128)")
    add("--batch", type=int, help="images of a step (128 on a GPU, 64 on a CPU)")
    add("--k", type=int, help="number of categories (200)")
    add("--cache-views", help="weak+strong views of the token cache (16+8 on a GPU, 4+2 on a CPU)")
    add("--table", type=Path, nargs="+", metavar="FILE", help="print the tables of these files instead")
    add("--into", type=Path, metavar="DOCUMENT", help="with --table: put the tables into this document")
    return parser


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else list(words)
    given = make_parser().parse_args(words)
    if not given.table:
        return measure(given, command("benchmarks/speed.py", words))
    text = tables([record for path in given.table for record in read_records(path, KEYS, "speed.py")])
    print(text)
    if given.into:
        insert(text, given.into)
    return 0


def measure(given: argparse.Namespace, told: str) -> int:
    """All parts that were asked for, into one file; 1 if one of them failed. told: the command, for the record."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("holotype").setLevel(logging.INFO)  # where images and tokens were put
    wanted = chosen(given.only)
    device = find_device(given.device)
    kind = "cuda" if device.type == "cuda" else "cpu"
    setting, effort = settings(given, DEFAULTS[kind]), EFFORTS[kind + (" quick" if given.quick else "")]
    effort = replace(effort, kmeans=IMAGENET_100) if given.full else effort
    with tempfile.TemporaryDirectory(prefix="holotype-speed-", ignore_cleanup_errors=True) as scratch:
        # an empty cache for the compiler: its time counts in full, whatever was compiled here before
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(scratch) / "compiler")
        os.environ["TRITON_CACHE_DIR"] = str(Path(scratch) / "triton")
        start = time.perf_counter()
        folder = Path(scratch) / "photographs"
        made = make_photographs(folder, setting.n_images, images=given.images, threads=cpu_count())
        print(f"made {made.description} ({time.perf_counter() - start:.1f} s)", flush=True)
        world = World(made.paths, setting.arch, setting.image_size, setting.batch, setting.k, device)
        found = {**facts(device), "command": told, "photographs": made.description, "quick": given.quick}
        record = join(given.out, found | asdict(setting))
        bench = Bench(world, setting.cache_views, Path(scratch) / "cache")
        failed = []
        for name in wanted:
            try:
                run_part(name, bench, effort, record, given.out)
            except RuntimeError:
                # out of memory, a kernel that failed: the other parts are still worth having
                failed.append(name)
                traceback.print_exc()
                bench.drop()
        bench.drop()
    print(tables([record]))
    if failed:
        print(f"These parts failed, as told above: {', '.join(failed)}.", file=sys.stderr)
    return 1 if failed else 0


def run_part(name: str, bench: Bench, effort: Effort, record: dict[str, Any], out: Path) -> None:
    """Measure one part; the file is written after every row, so that a killed run keeps what it has."""
    print(f"-- {name}", flush=True)
    start = time.perf_counter()
    result = PARTS[name](bench, effort)
    record["commands"][name] = record["command"]
    if isinstance(result, GeneratorType):
        rows: list[dict[str, Any]] = []
        record["parts"][name] = rows
        for row in result:
            rows.append(row)
            print("   " + progress(row), flush=True)
            save(record, bench, out)
    else:
        record["parts"][name] = result
        print("   " + ", ".join(f"{key} {value}" for key, value in result.items()), flush=True)
    save(record, bench, out)
    print(f"   {time.perf_counter() - start:.1f} s", flush=True)


def progress(row: dict[str, Any]) -> str:
    if "what" in row:
        return f"{row['what']}, {row['where']}, {row['images']:,} images, {row['detail']}: {row['seconds']:.2f} s"
    told = f"{row['method']}, {row['pipeline']}, {row['arithmetic']}, {row['images']:,} images, batch {row['batch']}"
    if "stage" in row:
        told += f", {row['stage']}"
    if "runs" in row:
        told += f", {row['runs']} at once"
    return f"{told}, K {row['k']}: {row['ms']:.2f} ms a step, start {row['start_seconds']:.1f} s"


def save(record: dict[str, Any], bench: Bench, out: Path) -> None:
    record["costs"] |= bench.costs
    write_record(out, record)


def join(out: Path, found: dict[str, Any]) -> dict[str, Any]:
    """The record that parts are added to: the file's own if it was made under the same conditions."""
    record = {**found, "commands": {}, "costs": {}, "parts": {}}
    if not has_record(out):
        return record
    before = read(out)
    other = [key for key in ALIKE if before.get(key) != found[key]]
    if other:
        raise InputError(
            f"{out} holds figures under another {', '.join(other)}; delete it, or name a new file with --out."
        )
    return {**record, **{key: before[key] for key in ("commands", "costs", "parts")}}


def read(path: Path) -> dict[str, Any]:
    return read_record(path, KEYS, "speed.py")


def chosen(only: str) -> list[str]:
    names = [name.strip() for name in only.split(",") if name.strip()]
    if unknown := [name for name in names if name not in PARTS]:
        raise InputError(f"There is no part {unknown[0]!r}; --only takes some of {','.join(PARTS)}.")
    return [name for name in PARTS if name in names]


def find_device(name: str) -> torch.device:
    from holotype.utils.device import pick_device

    device = torch.device(pick_device(name))
    return torch.device("cuda", 0) if device.type == "cuda" else device


if __name__ == "__main__":
    sys.exit(main())
