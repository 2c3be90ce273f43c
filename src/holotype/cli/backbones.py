"""`holotype backbones`: which network to take for which images, and one of them in a file for a machine offline."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from holotype.cli.common import Dir, Parser, echo
from holotype.config.types import DeviceName
from holotype.errors import InputError
from holotype.models.licences import has_conditions
from holotype.models.zoo import RECOMMENDED, USES, RecommendedBackbone

if TYPE_CHECKING:
    from collections.abc import Iterator

FETCH = "fetch"
BACKBONES_HEAD = ("backbone", "M weights", "pixels", "s / 1,000 images", "licence")
BACKBONES_FOOT = (
    "The lists follow what the networks were trained on; none was measured on images like yours. A star marks a "
    "licence with conditions: read it first. Any vision transformer of timm, hf-hub:organisation/repository and "
    ".safetensors files also work (docs/backbones.md)."
)


class SpeedRow(NamedTuple):
    """What is known of a network's speed."""

    parameters: float
    milliseconds: float


@dataclass
class BackbonesOptions:
    """List backbones for each kind of image, with size, licence, pixels and speed; or, with fetch NAME, download one
    into a single file for a machine without a network."""

    use: Annotated[str, "[USE]"] | None = None
    """Kind of images (default: all), or fetch."""
    name: Annotated[str, "[NAME]"] | None = None
    """With fetch: timm's name, hf-hub:ORGANISATION/REPOSITORY, or a list's name for its first choice."""
    to: Dir | None = None
    """With fetch: folder for the file (default: this one)."""
    measure: bool = False
    """Measure the speed on this machine, with random weights (half a minute; nothing is downloaded)."""
    device: DeviceName = "auto"
    """Where to measure."""


def make_parser() -> Parser:
    return Parser("backbones", BackbonesOptions)


def command(argv: Sequence[str]) -> int:
    options: BackbonesOptions = make_parser().parse_args(argv)
    if options.use == FETCH:
        return download_command(options)
    if options.name is not None or options.to is not None:
        raise InputError(f"A name and --to belong to fetch; write holotype backbones {FETCH} NAME --to DIR.")
    if options.use is not None and options.use not in USES:
        raise InputError(f"There is no list for {options.use!r}; the lists are {', '.join(USES)}.")
    uses = [options.use] if options.use else list(USES)
    wanted = {backbone for use in uses for backbone in RECOMMENDED[use]}
    speeds, source = measured_speed(wanted, options.device) if options.measure else recorded_speeds()
    echo("\n".join(backbones_text(uses, speeds, source)))
    return 0


def download_command(options: BackbonesOptions) -> int:
    """Write one .safetensors file that --backbone takes anywhere."""
    if options.name is None:
        raise InputError(f"{FETCH} needs a name; write holotype backbones {FETCH} NAME --to DIR.")
    if options.measure:
        raise InputError(f"--measure belongs to the lists; leave it out of {FETCH}.")
    from holotype.models.hub import download_backbone
    from holotype.models.licences import licence_text
    from holotype.utils.text import format_bytes

    done = download_backbone(options.name, options.to or Path())
    tags = done.tags
    echo(licence_text(tags["source"], tags["license"]))
    echo(f"{done.file}: {format_bytes(done.nbytes)}, {tags['timm']}, {tags['image_size']} pixels.")
    echo(f"Take it along; no network is needed there: holotype discover photos/ --backbone {done.file.name}")
    return 0


def recorded_speeds() -> tuple[dict[tuple[str, int], SpeedRow], str]:
    """Speeds as they were measured for the documents, and where."""
    import holotype.models

    content: dict[str, Any] = json.loads(
        (Path(holotype.models.__file__).parent / "speeds.json").read_text(encoding="utf-8")
    )
    found = {}
    for key, told in content["networks"].items():
        arch, size = key.split()
        found[arch, int(size)] = SpeedRow(told["parameters"], told["milliseconds"])
    return (
        found,
        f"Seconds are from a record made on {content['hardware']}, not here; --measure measures on this machine.",
    )


def measured_speed(
    wanted: set[RecommendedBackbone], device: str
) -> tuple[dict[tuple[str, int], SpeedRow], str]:
    """Speeds on this machine, now."""
    import torch

    from holotype.models.speed import measure_speed
    from holotype.runs.provenance import hardware
    from holotype.utils.device import Device

    compute = Device.on(device)
    found = {}
    for arch, size in sorted({(one.arch, one.image_size) for one in wanted}):
        speed = measure_speed(arch, size, compute.device, compute.trunk_dtype)
        found[arch, size] = SpeedRow(speed.parameters, speed.milliseconds)
    threads = f", {torch.get_num_threads()} threads" if compute.device.type == "cpu" else ""
    return (
        found,
        f"Seconds were measured now, on {hardware(compute.device)}{threads}, without reading the images.",
    )


def backbones_text(
    uses: Sequence[str], speeds: dict[tuple[str, int], SpeedRow], source: str
) -> Iterator[str]:
    """A table for each use."""
    rows = {use: [speed_cells(one, speeds) for one in RECOMMENDED[use]] for use in uses}
    every = [BACKBONES_HEAD, *(row for several in rows.values() for row in several)]
    widths = [max(len(row[column]) for row in every) for column in range(len(BACKBONES_HEAD))]
    for use in uses:
        yield f"{use}: {USES[use]}"
        yield f"  {align_columns(BACKBONES_HEAD, widths)}"
        for one, row in zip(RECOMMENDED[use], rows[use], strict=True):
            yield f"  {align_columns(row, widths)}"
            yield f"      {one.words}"
        yield ""
    yield from textwrap.wrap(f"{source} {BACKBONES_FOOT}", min(shutil.get_terminal_size().columns, 100))


def speed_cells(one: RecommendedBackbone, speeds: dict[tuple[str, int], SpeedRow]) -> tuple[str, ...]:
    told = speeds.get((one.arch, one.image_size))
    size, seconds = (f"{told.parameters / 1e6:.0f}", f"{told.milliseconds:.1f}") if told else ("", "")
    return (
        one.name,
        size,
        str(one.image_size),
        seconds,
        one.licence + ("*" if has_conditions(one.licence) else ""),
    )


def align_columns(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *numbers, last = row
    middle = [cell.rjust(width) for cell, width in zip(numbers, widths[1:-1], strict=True)]
    return "  ".join([first.ljust(widths[0]), *middle, last])
