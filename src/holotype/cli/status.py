"""`holotype status`: how runs, sweeps and discoveries stand, while they run and after they died."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holotype.cli.common import echo, echo_json
from holotype.cli.options import StatusOptions
from holotype.runs.status import Status, read_status
from holotype.utils.heartbeat import seconds_since
from holotype.utils.text import format_duration, plural

STATE_NAMES = {
    "running": "running",
    "stopped": "stopped; the same command continues",
    "failed": "failed",
    "dead": "dead: its process is gone; the same command continues from what was saved",
    "finished": "finished",
    "begun": "begun; nobody works on it",
}


def status_command(options: StatusOptions) -> None:
    runs = read_status(options.run)
    if options.json:
        echo_json([status.as_dict() for status in runs])
        return
    if len(runs) > 1:
        counts = Counter[str](status.state for status in runs)
        told = ", ".join(f"{counts[state]:,} {state}" for state in STATE_NAMES if counts[state])
        echo(f"{plural(len(runs), 'run')}: {told}")
    for status in runs:
        words = f" ({status.words})" if status.words else ""
        lines = [f"{status.folder}: {STATE_NAMES[status.state]}{words}", *status_lines(status)]
        echo("\n  ".join(lines))


def status_lines(status: Status) -> Iterator[str]:
    """Yield what a person wants to know beside the state."""
    if status.kind == "discovery" and status.round:
        yield f"round {status.round} is finished"
    if status.scores:
        yield ", ".join(f"{name.title()} {100 * value:.1f}" for name, value in status.scores.items())
    if where := status_place(status):
        yield where
    if status.alive and status.seconds_left is not None:
        yield f"training takes about {format_duration(status.seconds_left)} more"
    if status.last_save:
        yield f"last save {format_duration(seconds_since(status.last_save))} ago"
    if status.pid is not None:
        ago = format_duration(seconds_since(status.last_sign)) if status.last_sign else ""
        yield f"process {status.pid} on {status.host}{f', heard of {ago} ago' if ago else ''}: {status.command}"


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
