"""Figures as Markdown: the tables of docs/performance.md, from nothing but the files that speed.py wrote."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from holotype.errors import InputError
from holotype.machine.files import write_text

sys.path.append(str(Path(__file__).resolve().parents[1] / "experiments"))  # the harness is there

from harness import Record, method, pipeline, short, size, table

METHODS_NOTE = (
    "Every method with its default settings. DCCL's steps see 128 images beside the batch; its search for concepts is "
    "in the start and in no step. GPU memory: with the images and the token cache that lie there."
)
STAGES_NOTE = (
    "These stages send both views of every image through the whole network, back through it as well unless SPTNet's "
    "network learns. There prompt and network learn in turns, and are timed apart. GPU memory: with the images that "
    "lie there, without a token cache."
)
CLUSTERING_NOTE = (
    "Of made features, half of the classes known and half of their images labelled. Communities: the graph of 15 "
    "neighbours, and the median of 3 searches in it."
)


def methods_table(rows: Sequence[Record]) -> str:
    head = ["every method", "method", "ms a step", "images/s", "start, s", *memory_head(rows)]
    body = [[pipeline(row), method(row), *step_cells(row), *memory_cells(row, rows)] for row in rows]
    return table(head, body)


def stages_table(rows: Sequence[Record]) -> str:
    head = ["on images", "stage", "ms a step", "images/s", "start, s", *memory_head(rows)]
    body = [
        [pipeline(row), f"{method(row)}, {row['stage']}", *step_cells(row), *memory_cells(row, rows)]
        for row in rows
    ]
    return table(head, body)


def step_cells(row: Record) -> list[str]:
    return [short(row["ms"]), f"{row['images_per_second']:,.0f}", f"{row['start_seconds']:.1f}"]


def memory_head(rows: Sequence[Record]) -> list[str]:
    return [*(["GPU memory"] if any("device_bytes" in row for row in rows) else []), "host memory"]


def memory_cells(row: Record, rows: Sequence[Record]) -> list[str]:
    """As memory_head names them; empty where a row has no such figure."""
    names = ["device_bytes", "host_bytes"] if len(memory_head(rows)) == 2 else ["host_bytes"]
    return [size(row[name]) if name in row else "" for name in names]


def clustering_table(rows: Sequence[Record]) -> str:
    head = ["clustering", "where", "rows", "width", "K", "of which graph, s", "seconds", *memory_head(rows)]
    body = [
        [
            f"{row['what']}, {row['detail']}",
            row["where"],
            f"{row['images']:,}",
            f"{row['dim']:,}",
            f"{row['k']:,}",
            short(row["graph_seconds"]) if "graph_seconds" in row else "",
            short(row["seconds"]),
            *memory_cells(row, rows),
        ]
        for row in rows
    ]
    return table(head, body)


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
        blocks += [steps_table(rows, record["costs"]), SECONDS_NOTE]
    if record["costs"]:
        blocks.append(costs_table(record["costs"]))
    if "ceilings" in parts:
        blocks.append(ceiling_line(parts["ceilings"]))
    if "images" in parts:
        blocks.append(images_table(parts["images"]))
    if "batch" in parts:
        blocks.append(growth_table(parts["batch"], "batch", "Batch"))
    if "k" in parts:
        blocks.append(growth_table(parts["k"], "k", "K"))
    if "together" in parts:
        blocks.append(together_table(parts["together"]))
    if "methods" in parts:
        blocks += [methods_table(parts["methods"]), METHODS_NOTE]
    if "image_stages" in parts:
        blocks += [stages_table(parts["image_stages"]), STAGES_NOTE]
    if "clustering" in parts:
        blocks += [clustering_table(parts["clustering"]), CLUSTERING_NOTE]
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


SECONDS_NOTE = (
    "A step: the median over blocks of steps. Times faster: reference style's step over this one. 200 epochs: "
    "**extrapolated**, start + 200 x (images // batch) x the mean step, with decoding and caching added where the "
    "pipeline has them, without scoring. Start: what the first steps took beyond steady ones (compilation, capture, "
    "first reads; for RPC's own rows also one pass over all images for its prototypes)."
)


def conditions(record: Record) -> str:
    """What stands beside the figures."""
    commands = list(dict.fromkeys(record["commands"].values())) or [record["command"]]
    lines = [
        f"- {record['hardware']}, {record['cores']} CPU cores in all; Python {record['python']}, torch "
        f"{record['torch']}, torchvision {record['torchvision']}, timm {record['timm']}",
        f"- commit: {record['commit'] or 'not a checkout'}",
        *(f"- command: `{command}`" for command in commands),
    ]
    if sees_images(record):
        lines += [
            f"- images: {record['photographs']}",
            f"- network: {record['arch']} at {record['image_size']} pixels, "
            f"{'its weights' if record['arch'] == 'embedded' else 'random weights'}; batch {record['batch']}, "
            f"K = {record['k']}",
        ]
    if record.get("load") is not None:
        lines.append(f"- load average of the machine before the start: {record['load']}")
    if record.get("quick"):
        lines.append("- measured with `--quick`: rough")
    return "\n".join(lines)


def steps_table(rows: Sequence[Record], costs: Record) -> str:
    found = {(row["method"], row["arithmetic"]): row for row in rows if row["pipeline"] == REFERENCE}
    kinds = list(dict.fromkeys(arithmetic for _, arithmetic in found))
    on_gpu = any("device_bytes" in row for row in rows)
    head = ["pipeline", "method", "ms a step", "images/s", *(f"times faster than {kind}" for kind in kinds)]
    head += ["200 epochs, s", "start, s", *(["GPU memory"] if on_gpu else []), "host memory"]
    body = []
    for row in rows:
        ratios = [ratio(found.get((row["method"], kind)), row) for kind in kinds]
        memory = [size(row["device_bytes"])] if on_gpu else []
        body.append(
            [
                pipeline(row),
                method(row),
                short(row["ms"]),
                f"{row['images_per_second']:,.0f}",
                *ratios,
                f"{whole_run(row, costs):,.0f}",
                f"{row['start_seconds']:.1f}",
                *memory,
                size(row["host_bytes"]),
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


def costs_table(costs: Record) -> str:
    """What is paid once for all runs on the same images."""
    body = []
    if store := costs.get("store"):
        rate = store["images"] / max(store["seconds"], 1e-9)
        body.append(
            ["decoding", "image store", f"{store['seconds']:.1f}", size(store["bytes"]), f"{rate:,.0f}"]
        )
    if cache := costs.get("cache"):
        rate = cache["images"] / max(cache["seconds"], 1e-9)
        where = f"{cache['mode']}, in {LEVELS[cache['level']]}"
        body.append(["caching", where, f"{cache['seconds']:.1f}", size(cache["bytes"]), f"{rate:,.0f}"])
    return table(["paid once", "what", "seconds", "size", "images/s"], body)


LEVELS = {"device": "GPU memory", "host": "host memory", "disk": "a file"}


def ceiling_line(found: Record) -> str:
    return (
        f"The trunk alone, {found['views']} views of {found['gmac_per_view']:.2f} GMAC in {found['arithmetic']}: "
        f"{short(found['trunk_ms'])} ms, {short(found['trunk_tflops'])} TFLOP/s, **{100 * found['share']:.0f} %** of "
        f"the {short(found['matmul_tflops'])} TFLOP/s of a matrix product of side {found['matmul_side']:,} in the "
        "same run and arithmetic."
    )


def growth_table(rows: Sequence[Record], key: str, title: str) -> str:
    """One line per pipeline and method, one column per value of `key`."""
    values = sorted({row[key] for row in rows})
    lines: dict[tuple[str, str], dict[int, str]] = {}
    for row in rows:
        name = (pipeline(row), method(row))
        lines.setdefault(name, {})[row[key]] = short(row["ms"])
    body = [[*name, *(cells.get(value, "") for value in values)] for name, cells in lines.items()]
    return table(["ms a step", "method", *(f"{title} {value:,}" for value in values)], body)


def together_table(rows: Sequence[Record]) -> str:
    """Runs at once: a step of each of them, against a step of one alone."""
    alone = {(pipeline(row), method(row)): row["ms"] for row in rows if row["runs"] == 1}
    head = ["runs at once", "method", "runs", "ms for a step of each", "times one run", "GPU memory"]
    body = []
    for row in rows:
        one = alone.get((pipeline(row), method(row)))
        times = f"{row['ms'] / one:.2f}" if one else ""
        memory = size(row["device_bytes"]) if "device_bytes" in row else ""
        body.append([pipeline(row), method(row), str(row["runs"]), short(row["ms"]), times, memory])
    return table(head, body)


def images_table(rows: Sequence[Record]) -> str:
    head = ["images", "pipeline", "decoding, s", "store", "caching, s", "cache", "ms a step"]
    body = [
        [
            f"{row['images']:,}",
            pipeline(row),
            f"{row['decode_seconds']:.1f}",
            size(row["store_bytes"]),
            f"{row['cache']['seconds']:.1f}",
            size(row["cache"]["bytes"]),
            short(row["ms"]),
        ]
        for row in sorted(rows, key=lambda row: int(row["images"]))
    ]
    return table(head, body)
