"""`holotype status`: how runs, sweeps and discoveries stand, while they run and after they died."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holotype.cli.common import Parser, RunDir, echo, echo_json
from holotype.utils.text import format_duration, plural

if TYPE_CHECKING:
    from holotype.runs.status import Status

STATE_NAMES = {
    "running": "running",
    "stopped": "stopped; the same command continues",
    "failed": "failed",
    "dead": "dead: its process is gone; the same command continues from what was saved",
    "finished": "finished",
    "begun": "begun; nobody works on it",
}


@dataclass(kw_only=True)
class StatusOptions:
    """Show the progress of a run, a discovery or all runs of a sweep, while they run and after a crash: phase, step,
    loss, time left, last save, alive or dead. It only reads files of the run folder."""

    run: RunDir
    """Folder of a run or of a discovery, or a folder of run folders such as runs, the --out of holotype bench."""
    json: bool = False
    """For programs: print a list with one JSON object for each run, whose keys are folder, kind, state, alive, phase,
    stage, epoch, epochs, step, steps, loss, seconds_left, last_save, last_sign, pid, host, command, round, words and
    scores; what is not known is null or empty."""


def make_parser() -> Parser:
    return Parser("status", StatusOptions)


def command(argv: Sequence[str]) -> int:
    options: StatusOptions = make_parser().parse_args(argv)
    from holotype.runs.status import read_status

    runs = read_status(options.run)
    if options.json:
        echo_json([status.as_dict() for status in runs])
        return 0
    if len(runs) > 1:
        echo(status_overview(runs))
    for status in runs:
        echo("\n".join(status_lines(status)))
    return 0


def status_overview(found: Sequence[Status]) -> str:
    counts = {state: sum(one.state == state for one in found) for state in STATE_NAMES}
    told = ", ".join(f"{n:,} {state}" for state, n in counts.items() if n)
    return f"{plural(len(found), 'run')}: {told}"


def status_lines(status: Status) -> list[str]:
    """What a person wants to know, the state first."""
    from holotype.utils.heartbeat import seconds_since

    first = f"{status.folder}: {STATE_NAMES[status.state]}"
    if status.words:
        first += f" ({status.words})"
    told = [first]
    if status.kind == "discovery" and status.round:
        told.append(f"  round {status.round} is finished")
    if status.scores:
        told.append("  " + ", ".join(f"{name.title()} {100 * v:.1f}" for name, v in status.scores.items()))
    if where := status_place(status):
        told.append(f"  {where}")
    if status.alive and status.seconds_left is not None:
        told.append(f"  training takes about {format_duration(status.seconds_left)} more")
    if status.last_save:
        told.append(f"  last save {format_duration(seconds_since(status.last_save))} ago")
    if status.pid is not None:
        sign = (
            f", heard of {format_duration(seconds_since(status.last_sign))} ago" if status.last_sign else ""
        )
        told.append(f"  process {status.pid} on {status.host}{sign}: {status.command}")
    return told


def status_place(status: Status) -> str:
    """training: stage train, epoch 12 of 200, step 400 of 6,000, loss 2.310."""
    parts = [f"stage {status.stage}"] if status.stage else []
    if status.epoch is not None and status.epochs is not None:
        parts.append(f"epoch {status.epoch:,} of {status.epochs:,}")
    if status.step is not None and status.steps is not None:
        what = "step" if status.phase == "training" else "image"
        parts.append(f"{what} {status.step:,} of {status.steps:,}")
    if status.loss is not None:
        parts.append(f"loss {status.loss:.3f}")
    return f"{status.phase}: {', '.join(parts)}" if parts else status.phase
