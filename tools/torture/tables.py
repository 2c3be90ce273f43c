"""Lists of images, and files of settings, that people and programs have spoiled: read, or refused in a sentence."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tools.torture.harness import Campaign, Case, expect, numbered, survive
from tools.torture.mutate import TEXTS, text, worse
from tools.torture.world import World

AT_ONCE = 50


# -- tables -----------------------------------------------------------------------------------------------


@cache
def sound(images: Path) -> dict[str, bytes]:
    """Files that list the images, in all ways that are read, by name."""
    paths = sorted(path.relative_to(images).as_posix() for path in images.rglob("*.png"))
    rows = [(path, path.split("/")[0]) for path in paths]
    plain = "path,label\n" + "".join(f"{path},{label}\n" for path, label in rows)
    quoted = "path;label;truth\r\n" + "".join(f'"{path}";"{label}";"{label}"\r\n' for path, label in rows)
    absolute = "file_name\tlabel\n" + "".join(f"{images / path}\t{label}\n" for path, label in rows)
    return {
        "plain.csv": plain.encode(),
        "quoted.csv": quoted.encode("utf-8-sig"),
        "wide.csv": plain.encode("utf-16"),
        "tabs.tsv": absolute.encode(),
        "bare.csv": ("path\n" + "\n".join(paths)).encode(),
        "plain.parquet": _parquet(paths, [label for _, label in rows]),
        "numbers.parquet": _parquet(paths, list(range(len(rows)))),
        "floats.parquet": _parquet(paths, [float("nan"), *map(float, range(len(rows) - 1))]),
        "lists.parquet": _parquet(paths, [[label] for _, label in rows]),
        "bytes.parquet": _parquet(paths, [b"\xff\x00" for _ in rows]),
        "none.parquet": _parquet(paths, [None] * len(rows)),
        "nested.parquet": _parquet(paths, [{"a": {"b": 1}} for _ in rows]),
        "empty.csv": b"",
        "header.csv": b"path,label\n",
    }


def _parquet(paths: list[str], labels: list[object]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(pa.table({"path": paths, "label": labels}), stream)
    return stream.getvalue()


def _check_tables(world: World, case: Case) -> list[str]:
    seed, number = case.what
    dice, kinds = random.Random(f"tables {seed} {number}"), list(sound(world.images).items())
    folder = world.fresh() / "tables"
    folder.mkdir()
    tries: list[tuple[str, Callable[[], list[str]]]] = []
    for i in range(AT_ONCE):
        name, content = dice.choice(kinds)
        if name.endswith(".parquet") or dice.random() < 0.5:
            how, made = worse(dice, content, [other for _, other in kinds])
        else:
            how, made = "cells", _cells(dice, content)
        path = folder / f"{i:03d}-{name}"
        path.write_bytes(made)
        tries.append((f"{path.name} ({how})", lambda path=path: _read_table(path, world.images)))
    return survive(tries, watched=str(world.trial))


def _cells(dice: random.Random, content: bytes) -> bytes:
    """Some cells replaced by words that break things."""
    lines = content.decode("utf-8", "replace").splitlines()
    for _ in range(dice.randrange(1, 6)):
        if lines:
            row = dice.randrange(len(lines))
            cells = lines[row].split(",")
            cells[dice.randrange(len(cells))] = text(dice)
            lines[row] = dice.choice((",", ",", ";", "\t")).join(cells)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _read_table(path: Path, images: Path) -> list[str]:
    from holotype.data.labels import read_csv_table
    from holotype.data.load import load_table
    from holotype.errors import InputError

    for work in (
        lambda: load_table(images, path),
        lambda: read_csv_table(path, images, skip_missing=True),
    ):
        table = expect((InputError,), work)
        if table is None:
            continue
        if len(set(table.path)) != len(table) or set(table.label) - {""} - set(table.known):
            return ["gave a table that does not hold together"]
        table.fingerprint()
    return []


# -- settings ---------------------------------------------------------------------------------------------

BOMBS = {
    "laughs": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{c}: &{c} [{','.join([f'*{p}'] * 9)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "itself": "a: &a [*a]\nseed: *a\n",
    "deep": "[" * 20_000,
    "braces": "{a: " * 5_000,
    "code": "seed: !!python/object/apply:os.system ['touch owned']\n",
    "name": "seed: !!python/name:os.system\n",
    "merge": "<<: [{seed: 1}, {seed: 2}]\n<<: 3\n",
    "int": "seed: !!int many\nout: !!binary '%%%'\n",
    "date": "seed: 2020-13-45\n",
    "long": "seed: " + "9" * 5_000 + "\n",
    "keys": "? [a, b]\n: 1\n? {x: y}\n: 2\n",
}


def _check_yaml(world: World, case: Case) -> list[str]:
    from holotype.cli import main

    seed, number = case.what
    dice = random.Random(f"yaml {seed} {number}")
    folder = world.fresh() / "settings"
    folder.mkdir()
    words = ["simgcd", str(world.listed), "--print_config"]
    sources = [_settings(), *_studies(world)]
    tries: list[tuple[str, Callable[[], list[str]]]] = []
    for i in range(AT_ONCE):
        name, content = (
            dice.choice([*BOMBS.items()]) if dice.random() < 0.25 else ("settings", dice.choice(sources))
        )
        how, made = ("as it is", content.encode()) if name != "settings" else _worse_settings(dice, content)
        path = folder / f"{i:03d}.yaml"
        path.write_bytes(made)
        command = (
            ["bench", "--study", str(path), "--table-only"]
            if "rows:" in content
            else ["train", *words, "--config", str(path)]
        )
        tries.append((f"{path.name} ({name}, {how})", lambda command=command: _ends(main, command)))
    return survive(tries, watched=str(world.trial))


@cache
def _settings() -> str:
    from holotype.config.parse import write_yaml
    from holotype.runs.experiment import default_experiment

    return write_yaml(default_experiment("simgcd", "images").as_dict())


def _studies(world: World) -> list[str]:
    return [
        f"name: tried\nmethods: [kmeans]\ndatasets: ['{world.listed}']\nseeds: [0]\nrows:\n  plain: {{k: 4}}\n"
    ]


def _worse_settings(dice: random.Random, content: str) -> tuple[str, bytes]:
    if dice.random() < 0.5:
        return worse(dice, content.encode())
    lines = content.splitlines()
    row = dice.randrange(len(lines))
    key, colon, _ = lines[row].partition(":")
    value = dice.choice(
        (*TEXTS, "1e999", "-1", "[]", "{}", "null", "[1, 2]", "{a: b}", "0x10", "1:30", "!!str", "&a")
    )
    lines[row] = f"{key}{colon} {value}"
    return "value", "\n".join(lines).encode("utf-8", "surrogatepass")


def _ends(main: Callable[[list[str]], int], words: list[str]) -> list[str]:
    """A command that ends with 0 or 2, whatever it says."""
    import contextlib

    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = main(words)
    if code not in (0, 2):
        return [f"ended with {code}: {said.getvalue():.200}"]
    lines = said.getvalue().strip().splitlines()
    return [] if code == 0 or lines else ["ended with 2 and said nothing"]


TABLES = Campaign(
    "tables",
    "spoiled CSV, TSV and Parquet files",
    numbered(AT_ONCE),
    _check_tables,
    kind="mutated inputs",
    short=6,
    weight=0.5,
)
SETTINGS = Campaign(
    "settings",
    "spoiled YAML files",
    numbered(AT_ONCE),
    _check_yaml,
    kind="mutated inputs",
    short=1,
    weight=0.5,
)
