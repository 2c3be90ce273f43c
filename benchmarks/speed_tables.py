"""Figures as Markdown: the tables of docs/performance.md, from nothing but the files that speed.py wrote."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from holotype.errors import InputError
from holotype.utils.atomic import write_text

sys.path.append(str(Path(__file__).resolve().parents[1] / "experiments"))  # the harness is there

from harness import Record, method, pipeline, short, size, table


def methods_table(rows: Sequence[Record]) -> str:
    """Methods on cached views, or stages on images, of one pipeline; another one is named beside its row."""
    first = pipeline(rows[0])
    body = []
    for row in rows:
        name = f"{method(row)}, {row['stage']}" if "stage" in row else method(row)
        other = "" if pipeline(row) == first else f" ({pipeline(row)})"
        body.append([f"{name}{other}", short(row["ms"]), memory_cell(row, rows)])
    return table([first, "ms a step", memory_head(rows)], body)


def memory_head(rows: Sequence[Record]) -> str:
    return "GPU memory" if any("device_bytes" in row for row in rows) else "host memory"


def memory_cell(row: Record, rows: Sequence[Record]) -> str:
    """As memory_head names it; empty where a row has no such figure."""
    name = "device_bytes" if memory_head(rows) == "GPU memory" else "host_bytes"
    return size(row[name]) if name in row else ""


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
    for key in ("batch", "k") if record.get("device") == "cuda" else ():  # a CPU grows alike
        lines += growth_lines(parts.get(key, []), key)
    lines += together_lines(parts.get("together", []))
    lines += map(clustering_line, parts.get("clustering", []))
    blocks += ["\n".join(lines)] if lines else []
    blocks += [methods_table(parts[name]) for name in ("methods", "image_stages") if parts.get(name)]
    return "\n\n".join(blocks)


LATER = {"methods": "every method", "image_stages": "stages on images", "clustering": "clustering"}
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
    return list(record["parts"]) != ["clustering"]


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
    found = {(row["method"], row["arithmetic"]): row for row in rows if row["pipeline"] == REFERENCE}
    kinds = list(dict.fromkeys(arithmetic for _, arithmetic in found))
    on_gpu = any("device_bytes" in row for row in rows)
    head = ["pipeline", "method", "ms a step", *(f"times {kind}" for kind in kinds)]
    head += ["200 epochs, s", "GPU memory" if on_gpu else "host memory"]
    body = []
    for row in rows:
        ratios = [ratio(found.get((row["method"], kind)), row) for kind in kinds]
        body.append(
            [
                pipeline(row),
                method(row),
                short(row["ms"]),
                *ratios,
                f"{whole_run(row, costs):,.0f}",
                size(row["device_bytes" if on_gpu else "host_bytes"]),
            ]
        )
    return table(head, body)


def ratio(reference: Record | None, row: Record) -> str:
    return "" if reference is None else f"{reference['ms'] / row['ms']:.1f}"


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
        f"- The trunk alone, {found['views']} views of {found['gmac_per_view']:.2f} GMAC in {found['arithmetic']}: "
        f"{short(found['trunk_ms'])} ms, {short(found['trunk_tflops'])} TFLOP/s, **{100 * found['share']:.0f} %** of "
        f"the {short(found['matmul_tflops'])} TFLOP/s of a matrix product of side {found['matmul_side']:,} in the "
        "same run"
    )


def growth_lines(rows: Sequence[Record], key: str) -> list[str]:
    """Milliseconds a step over the values of `key`, a line per pipeline and method."""
    found: dict[str, list[Record]] = {}
    for row in rows:
        found.setdefault(f"{method(row)}, {pipeline(row)}", []).append(row)
    title = {"batch": "batch", "k": "K"}[key]
    return [
        f"- {name}: {', '.join(short(row['ms']) for row in group)} ms a step at {title} "
        f"{', '.join(f'{row[key]:,}' for row in group)}"
        for name, group in found.items()
    ]


def together_lines(rows: Sequence[Record]) -> list[str]:
    """Runs at once: a step of each of them, against a step of one alone."""
    alone = {(pipeline(row), method(row)): row["ms"] for row in rows if row["runs"] == 1}
    found = []
    for row in (row for row in rows if row["runs"] > 1):
        one = alone.get((pipeline(row), method(row)))
        times = f", {row['ms'] / one:.2f} times one run" if one else ""
        memory = f", {size(row['device_bytes'])}" if "device_bytes" in row else ""
        found.append(
            f"- {row['runs']} runs of {method(row)} at once, {pipeline(row)}: {short(row['ms'])} ms for a step of each"
            f"{times}{memory}"
        )
    return found
