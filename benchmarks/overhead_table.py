"""The table of what each method adds to the network, from nothing but the files that overhead.py wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from script import read_record
from tables import short, table

from holotype.errors import InputError
from holotype.runs.published import read_published

Record = dict[str, Any]
COUNTED = ("name", "method", "what", "parameters", "macs")
"""What depends on the code alone, and must be the same in all files."""


def overhead_table(folder: Path) -> str:
    """One table: counts, the paper's beside them, and a column of step times for each machine."""
    records = [read(path) for path in sorted(folder.glob("*.json"))]
    if not records:
        raise InputError(f"There is nothing in {folder}; run python benchmarks/overhead.py first.")
    counts = [[{key: row[key] for key in COUNTED} for row in record["rows"]] for record in records]
    if any(other != counts[0] for other in counts):
        raise InputError(f"The files in {folder} count different parameters or MACs; measure them again.")
    head = ["Row", "What", "Parameters, M", "published", "GMAC a view", "of these heads, MMAC"]
    head += ["published GFLOP", *(f"ms a step, {record['hardware']}" for record in records)]
    times = [[step_time(record["rows"][i]) for record in records] for i in range(len(counts[0]))]
    body = [[*cells(row), *told] for row, told in zip(counts[0], times, strict=True)]
    return "\n\n".join([table(head, body), *notes(records)])


def read(path: Path) -> Record:
    return read_record(path, ("rows", "hardware", "commit", "torch", "command"), "overhead.py")


def cells(row: Record) -> list[str]:
    parameters, macs = row["parameters"], row["macs"]
    printed = read_published()["overhead"]["cells"].get(row["method"])
    return [
        row["name"],
        row["what"],
        f"{(parameters['backbone'] + parameters['heads']) / 1e6:.2f}",
        f"{printed['parameters_millions']:.2f}" if printed else "",
        f"{(macs['backbone'] + macs['heads']) / 1e9:.2f}",
        short(macs["heads"] / 1e6),
        f"{printed['flops_billions']:.2f}" if printed else "",
    ]


def step_time(row: Record) -> str:
    step = row["step"]
    return f"{short(step['ms'])}{' (captured)' if step['captured'] else ''}"


def notes(records: Sequence[Record]) -> list[str]:
    first = records[0]
    told = [
        f"Parameters and multiply-accumulates (forward, one view at {first['image_size']} pixels) of {first['arch']} "
        f"and all heads, K = {first['k']}, {first['n_known']} known classes; norms, activations and additions are "
        "not counted. A step: tail, heads, losses and their gradients on cached tokens, the frozen blocks left out; "
        "median.",
        remark(),
    ]
    for record in records:
        told.append(
            f"{record['hardware']}: batch {record['batch']}, torch {record['torch']}, commit "
            f"{record['commit'] or 'unknown'}; `{record['command']}`."
        )
    return told


def remark() -> str:
    """Why the printed FLOPs of RPC are not matched."""
    printed = read_published()["overhead"]["cells"]
    simgcd, rpc = printed["simgcd"], printed["rpc"]
    parameters = rpc["parameters_millions"] - simgcd["parameters_millions"]
    flops = rpc["flops_billions"] - simgcd["flops_billions"]
    positions = round(1e3 * flops / parameters, -1)
    return (
        f"Published: {read_published()['overhead']['source']}; its FLOPs are multiply-accumulates. That column cannot "
        f"follow from the parameters: a head of {parameters:.2f} M parameters costs about as many multiply-accumulates "
        f"on the one vector of a view, and {flops:.2f} G would need it at about {positions:.0f} positions."
    )
