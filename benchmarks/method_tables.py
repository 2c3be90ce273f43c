"""The tables of method_parts.py and cluster_parts.py."""

from __future__ import annotations

from collections.abc import Sequence

from table_cells import Record, method, pipeline, short, size, table

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
