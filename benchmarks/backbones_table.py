"""The table of networks in docs/backbones.md, from nothing but the file that backbones.py wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from script import read_record
from tables import short, table

Row = dict[str, Any]
HEAD = ["Family", "Network", "Feature", "Pixels", "Tokens", "Tail", "Off by", "of gradients", "ms an image"]
HEAD += ["last block learns, ms", "whole block, ms"]
FACTS = ("hardware", "torch", "timm", "commit")


def backbones_table(folder: Path) -> str:
    record = read_record(folder / "cpu.json", ("rows", *FACTS), "backbones.py")
    body = [cells(row) for row in record["rows"]]
    return "\n\n".join([table(HEAD, body), *notes(record)])


def cells(row: Row) -> list[str]:
    name = f"`{row['name']}`"
    if "refused" in row:
        return [row["family"], name, "", "", "", "refused", "", "", "", "", ""]
    used, whole = row["blocks"]
    cut = "" if used == whole else f" ({used} of {whole} blocks)"
    return [
        row["family"],
        f"{name}{cut}",
        row["feature"] + ("" if row["timm"] else " (timm: mean)"),
        str(row["pixels"]),
        str(row["tokens"]),
        row["tail"],
        scientific(row["values"]),
        scientific(row["gradients"]),
        *(short(row[key]) for key in ("network_ms", "tail_ms", "whole_ms")),
    ]


def scientific(value: float) -> str:
    return "0" if value == 0 else f"{value:.0e}".replace("e-0", "e-")


def notes(record: Row) -> list[str]:
    rows = record["rows"]
    refused = [row["name"] for row in rows if "refused" in row]
    kinds: dict[str, list[float]] = {}
    for row in rows:
        if "refused" not in row and row["tail"] != "WholeTail":
            kinds.setdefault(row["tail"], []).append(row["whole_ms"] / row["tail_ms"])
    gains = "; ".join(
        f"{kind} {min(found):.1f} to {max(found):.1f} times" for kind, found in sorted(kinds.items())
    )
    single = [row["name"] for row in rows if row.get("double") is False]
    return [
        f"{len(rows)} networks with random weights on {record['hardware']}, torch {record['torch']}, timm "
        f"{record['timm']}, commit {record['commit']}. Refused, since they have no last blocks of a plain vision "
        f"transformer: {', '.join(refused)}. Off by: the largest difference from timm's own network in double "
        "precision, as a share of the largest number, and the same for gradients of the last block (single precision: "
        f"{', '.join(single)}). A cut network's time is that of the blocks it has. The last two columns are forward "
        "and backward of an image whose trunk is done.",
        f"How much faster than the whole block: {gains}.",
        "Made by `python benchmarks/backbones.py`, then `python benchmarks/exhibits.py docs/backbones.md`.",
    ]
