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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import GeneratorType
from typing import Any

import torch

from holotype.errors import InputError
from holotype.utils.atomic import write_text
from holotype.utils.device import cpu_count, pick_device
from measure import (
    EFFORTS,
    EMBEDDED_SIZE,
    IMAGENET_100,
    Effort,
    Record,
    World,
    choose_parts,
    command,
    facts,
    has_record,
    make_photographs,
    method,
    one_sentence,
    pipeline,
    read_record,
    read_records,
    script_parser,
    short,
    size,
    table,
    write_record,
)
from parts import PARTS, Bench

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
    wanted = choose_parts(given.only, PARTS)
    device = torch.device(pick_device(given.device))
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
    before = read_record(out, KEYS, "speed.py")
    other = [key for key in ALIKE if before.get(key) != found[key]]
    if other:
        raise InputError(
            f"{out} holds figures under another {', '.join(other)}; delete it, or name a new file with --out."
        )
    return {**record, **{key: before[key] for key in ("commands", "costs", "parts")}}


# -- tables ---------------------------------------------------------------------------------------------


def methods_line(rows: Sequence[Record]) -> str:
    """Methods on cached views, or stages on images, of one pipeline; another one is named beside its figure."""
    first, key = pipeline(rows[0]), "device_bytes" if "device_bytes" in rows[0] else "host_bytes"
    cells = []
    for row in rows:
        name = f"{method(row)}, {row['stage']}" if "stage" in row else method(row)
        cells.append(f"{name} {short(row['ms'])}" + ("" if pipeline(row) == first else f" ({pipeline(row)})"))
    least, most = (size(of(row[key] for row in rows)) for of in (min, max))
    return f"- {first}, ms a step: {'; '.join(cells)}; {least} to {most}"


def clustering_line(row: Record) -> str:
    memory = f", {size(row['device_bytes'])}" if "device_bytes" in row else ""
    graph = f", the graph {short(row['graph_seconds'])}" if "graph_seconds" in row else ""
    return (
        f"- {row['what']}, {row['detail']}, of {row['images']:,} x {row['dim']:,} features, K = {row['k']:,}: "
        f"{short(row['seconds'])} s{graph} ({row['where']}{memory})"
    )


BEGIN, END = "<!-- tables of benchmarks/speed.py -->", "<!-- end of the tables -->"
REFERENCE = "reference style"


def insert(text: str, document: Path) -> None:
    """Replace what stands between the two marks of a document."""
    old = document.read_text(encoding="utf-8") if document.is_file() else ""
    head, begin, rest = old.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise InputError(f"{document} has no place for the tables; give it two lines, {BEGIN} and {END}.")
    write_text(document, f"{head}{begin}\n\n{text}\n\n{end}{tail}")


def tables(records: Sequence[Record]) -> str:
    """One section per file."""
    return "\n\n".join(section(record) for record in records)


def section(record: Record) -> str:
    """All tables of one file; parts that were not measured are left out."""
    parts = record["parts"]
    blocks = [f"### {title(record)}", conditions(record)]
    if rows := [row for name in ("reference", "exact", "cached") for row in parts.get(name, [])]:
        blocks.append(steps_table(rows, record["costs"]))
    lines = cost_lines(record["costs"]) if rows else []
    if "ceilings" in parts:
        lines.append(ceiling_line(parts["ceilings"]))
    if record.get("device") == "cuda":  # on a CPU all of this grows alike
        for key in ("batch", "k", "images"):
            lines += growth_lines(parts.get(key, []), key)
        lines += together_lines(parts.get("together", []))
    lines += views_lines(parts.get("views", []))
    lines += [methods_line(parts[name]) for name in ("methods", "image_stages") if parts.get(name)]
    lines += map(clustering_line, parts.get("clustering", []))
    lines += clusters_lines(parts.get("growth", []))
    blocks += ["\n".join(lines)] if lines else []
    return "\n\n".join(blocks)


LATER = {
    "methods": "every method",
    "image_stages": "stages on images",
    "clustering": "clustering",
    "growth": "growth",
}
"""Parts that stand well in a file of their own, beside that of the others from the same machine."""


def title(record: Record) -> str:
    """The machine, and what else tells its sections apart."""
    if not record["parts"] or record["parts"].keys() - LATER:
        return str(record["hardware"])
    told = ", ".join(words for part, words in LATER.items() if part in record["parts"])
    network = f", {record['arch']}" if sees_images(record) else ""
    return f"{record['hardware']}{network}: {told}"


def sees_images(record: Record) -> bool:
    """Whether anything but clustering was measured."""
    return not record["parts"].keys() <= {"clustering", "growth"}


def conditions(record: Record) -> str:
    """What stands beside the figures."""
    commands = list(dict.fromkeys(record["commands"].values())) or [record["command"]]
    told = [
        f"{record['cores']} CPU cores in all; Python {record['python']}, torch {record['torch']}, timm "
        f"{record['timm']}; commit {record['commit'] or 'not a checkout'}; "
        f"{', '.join(f'`{command}`' for command in commands)}."
    ]
    if sees_images(record):
        weights = "its weights" if record["arch"] == "embedded" else "random weights"
        told.append(
            f"{record['n_images']:,} images; {record['arch']} at {record['image_size']} pixels, {weights}; batch "
            f"{record['batch']}, K = {record['k']}."
        )
    if record.get("quick"):
        told.append("Measured with `--quick`: rough.")
    return " ".join(told)


def steps_table(rows: Sequence[Record], costs: Record) -> str:
    """A row for each pipeline; the figures of its methods stand beside each other."""
    found = {(row["method"], row["arithmetic"]): row for row in rows if row["pipeline"] == REFERENCE}
    kinds = list(dict.fromkeys(arithmetic for _, arithmetic in found))[-1:]  # the fastest
    on_gpu = any("device_bytes" in row for row in rows)
    names = "/".join(dict.fromkeys(method(row) for row in rows))
    head = [names, "ms a step", *(f"times {kind}" for kind in kinds)]
    head += ["200 epochs, s", "GPU memory" if on_gpu else "host memory"]
    body = []
    for name in dict.fromkeys(pipeline(row) for row in rows):
        group = [row for row in rows if pipeline(row) == name]
        cells: list[list[str]] = [[short(row["ms"]) for row in group]]
        cells += [[ratio(found.get((row["method"], kind)), row) for row in group] for kind in kinds]
        cells += [[f"{whole_run(row, costs):,.0f}" for row in group]]
        cells += [[size(row["device_bytes" if on_gpu else "host_bytes"]) for row in group]]
        body.append([name, *map("/".join, cells)])
    return table(head, body)


def ratio(reference: Record | None, row: Record) -> str:
    return "-" if reference is None else f"{reference['ms'] / row['ms']:.1f}"


def whole_run(row: Record, costs: Record) -> float:
    """Seconds of 200 epochs, with what is paid before the first step."""
    seconds = float(row["extrapolated_seconds"])
    if row["pipeline"] != REFERENCE:
        seconds += costs.get("store", {}).get("seconds", 0.0)
    if row["pipeline"].startswith("cached"):
        seconds += costs.get("cache", {}).get("seconds", 0.0)
    return seconds


def cost_lines(costs: Record) -> list[str]:
    """What is paid once for all runs on the same images."""
    found = []
    for name, what in (("store", "decoding"), ("cache", "caching")):
        if cost := costs.get(name):
            rate = cost["images"] / max(cost["seconds"], 1e-9)
            where = (
                f" {cost['mode'].removeprefix('cached ')} in {LEVELS[cost['level']]}"
                if name == "cache"
                else ""
            )
            size_ = size(cost["bytes"])
            found.append(f"- {what}{where}, once: {cost['seconds']:.1f} s, {size_}, {rate:,.0f} images/s")
    return found


LEVELS = {"device": "GPU memory", "host": "host memory", "disk": "a file"}


def ceiling_line(found: Record) -> str:
    return (
        f"- trunk alone, {found['views']} views of {found['gmac_per_view']:.2f} GMAC, {found['arithmetic']}: "
        f"{short(found['trunk_ms'])} ms, **{100 * found['share']:.0f} %** of the {short(found['matmul_tflops'])} "
        "TFLOP/s of a matrix product"
    )


def growth_lines(rows: Sequence[Record], key: str) -> list[str]:
    """Milliseconds a step over the values of `key`, a line per pipeline and method."""
    found: dict[str, list[Record]] = {}
    for row in rows:
        found.setdefault(f"{method(row)}, {row['pipeline']}", []).append(row)
    title = {"batch": "batch", "k": "K", "images": "images"}[key]
    return [
        f"- {name}: {each(group, 'ms', short)} ms a step at {title} {each(group, key, '{:,}'.format)}"
        for name, group in found.items()
    ]


def each(rows: Sequence[Record], key: str, cell: Callable[[Any], str] = str) -> str:
    return ", ".join(cell(row[key]) for row in rows)


def views_lines(rows: Sequence[Record]) -> list[str]:
    """Cost of a token cache over its views."""
    if not rows:
        return []
    caches = [row["cache"] for row in rows]
    return [
        f"- token cache of {rows[0]['images']:,} images, {each(caches, 'mode')}: {each(caches, 'seconds', short)} s, "
        f"{each(caches, 'bytes', size)}; a step of {method(rows[0])} {each(rows, 'ms', short)} ms"
    ]


def clusters_lines(rows: Sequence[Record]) -> list[str]:
    """Seconds of k-means, and the peak of memory, over images at one K and over K at one number of images."""
    lines = []
    for key, fixed, at in (("images", "k", 0), ("k", "images", -1)) if rows else ():
        by_key = {row[key]: row for row in rows if row[fixed] == rows[at][fixed]}
        group = [by_key[value] for value in sorted(by_key)]
        memory = "device_bytes" if "device_bytes" in rows[0] else "host_bytes"
        names = {"images": "images", "k": "K"}
        lines.append(
            f"- k-means, one start, {rows[0]['dim']} dimensions, {names[fixed]} {rows[at][fixed]:,}: "
            f"{each(group, 'seconds', short)} s, {each(group, memory, size)} at {names[key]} "
            f"{each(group, key, '{:,}'.format)} ({rows[0]['where']})"
        )
    return lines


def together_lines(rows: Sequence[Record]) -> list[str]:
    """Runs at once: a step of each of them, against a step of one alone."""
    alone = {(pipeline(row), method(row)): row["ms"] for row in rows if row["runs"] == 1}
    found = []
    for row in (row for row in rows if row["runs"] > 1):
        one = alone.get((pipeline(row), method(row)))
        times = f", {row['ms'] / one:.2f} times one run" if one else ""
        memory = f", {size(row['device_bytes'])}" if "device_bytes" in row else ""
        found.append(
            f"- {row['runs']} runs of {method(row)} at once, {row['pipeline']}: {short(row['ms'])} ms a step of each"
            f"{times}{memory}"
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
