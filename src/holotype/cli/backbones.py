"""`holotype backbones`: which network to take for which images, and one of them in a file for a machine offline."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from holotype.cli.common import Dir, Parser, aligned, echo
from holotype.config.types import DeviceName
from holotype.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holotype.models.zoo import RecommendedBackbone

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
    from holotype.models.zoo import RECOMMENDED, USES

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
    from holotype.models.backbone import download_backbone
    from holotype.models.zoo import licence_text
    from holotype.utils.text import format_bytes

    done = download_backbone(options.name, options.to or Path())
    tags = done.tags
    echo(licence_text(tags["source"], tags["license"]))
    echo(f"{done.file}: {format_bytes(done.nbytes)}, {tags['timm']}, {tags['image_size']} pixels.")
    echo(f"Take it along; no network is needed there: holotype discover photos/ --backbone {done.file.name}")
    return 0


def recorded_speeds() -> tuple[dict[tuple[str, int], SpeedRow], str]:
    """Speeds as they were measured for the documents, and where."""
    content: dict[str, Any] = json.loads(
        (files("holotype.models") / "speeds.json").read_text(encoding="utf-8")
    )
    words = f"Seconds are from a record made on {content['hardware']}, not here; --measure measures on this machine."
    speeds = {}
    for key, speed in content["networks"].items():
        arch, size = key.split()
        speeds[arch, int(size)] = SpeedRow(speed["parameters"], speed["milliseconds"])
    return speeds, words


def measured_speed(
    wanted: set[RecommendedBackbone], device: str
) -> tuple[dict[tuple[str, int], SpeedRow], str]:
    """Speeds on this machine, now."""
    import torch

    from holotype.models.zoo import measure_speed
    from holotype.runs.provenance import hardware
    from holotype.utils.device import Device

    compute = Device.on(device)
    speeds = {}
    for arch, size in sorted({(backbone.arch, backbone.image_size) for backbone in wanted}):
        speed = measure_speed(arch, size, compute.device, compute.trunk_dtype)
        speeds[arch, size] = SpeedRow(speed.parameters, speed.milliseconds)
    threads = f", {torch.get_num_threads()} threads" if compute.device.type == "cpu" else ""
    where = f"{hardware(compute.device)}{threads}"
    return speeds, f"Seconds were measured now, on {where}, without reading the images."


def backbones_text(
    uses: Sequence[str], speeds: dict[tuple[str, int], SpeedRow], source: str
) -> Iterator[str]:
    """A table for each use."""
    from holotype.models.zoo import RECOMMENDED, USES

    rows = [BACKBONES_HEAD, *(speed_cells(backbone, speeds) for use in uses for backbone in RECOMMENDED[use])]
    head, *lines = aligned(rows, right=(1, 2, 3))
    rest = iter(lines)
    for use in uses:
        yield f"{use}: {USES[use]}\n  {head}"
        for backbone in RECOMMENDED[use]:
            yield f"  {next(rest)}\n      {backbone.words}"
        yield ""
    yield from textwrap.wrap(f"{source} {BACKBONES_FOOT}", min(shutil.get_terminal_size().columns, 100))


def speed_cells(backbone: RecommendedBackbone, speeds: dict[tuple[str, int], SpeedRow]) -> tuple[str, ...]:
    from holotype.models.zoo import has_conditions

    speed = speeds.get((backbone.arch, backbone.image_size))
    size, seconds = (f"{speed.parameters / 1e6:.0f}", f"{speed.milliseconds:.1f}") if speed else ("", "")
    licence = backbone.licence + ("*" if has_conditions(backbone.licence) else "")
    return backbone.name, size, str(backbone.image_size), seconds, licence
