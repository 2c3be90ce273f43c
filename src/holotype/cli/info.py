"""What there is: `holotype methods`, `holotype backbones` (also fetches one into a file) and `holotype data`."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holotype.cli.common import aligned, echo
from holotype.cli.options import BackbonesOptions, DataOptions, MethodsOptions
from holotype.errors import InputError

if TYPE_CHECKING:
    from holotype.models.zoo import RecommendedBackbone, Speed
    from holotype.runs.method_info import MethodInfo

    Speeds = dict[tuple[str, int], Speed]

METHODS_HEAD = ("method", "year", "stages", "cache", "graph", "what it does")
WRAPPERS_HEAD = "In front of a method, as in eagc+rpc:"
METHODS_FOOT = (
    "cache: whether the token cache applies (--cache-views); graph: whether steps are captured as a CUDA graph. "
    "holotype methods NAME prints a method's card; NAME may also be package.module:Class."
)
BACKBONES_HEAD = ("backbone", "M weights", "pixels", "s / 1,000 images", "licence")
BACKBONES_FOOT = (
    "The lists follow what the networks were trained on; none was measured on images like yours. A star marks a "
    "licence with conditions: read it first. Any vision transformer of timm, hf-hub:organisation/repository and "
    ".safetensors files also work (docs/backbones.md)."
)


def wrapped(text: str, indent: str = "", margin: int = 2) -> str:
    """Return a text in lines as wide as the terminal, at most 100. margin: room that is left beside them."""
    width = min(shutil.get_terminal_size().columns, 100) - margin
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def methods_command(options: MethodsOptions) -> int:
    from holotype.runs.method_info import method_info

    echo(methods_text() if options.name is None else card_text(method_info(options.name)))
    return 0


def methods_text() -> str:
    """Return a line for each method, those of installed packages last."""
    from holotype.methods import WRAPPERS
    from holotype.runs.method_info import MethodInfo, list_methods, stage_names

    rows, broken = [METHODS_HEAD], []
    for info in list_methods():
        if isinstance(info, MethodInfo):
            year = str(info.card.year) if info.card else ""
            rows.append((info.name, year, stage_names(info), info.cache, info.capture, info.line))
        else:
            broken.append(str(info))
    cards = [(name, str(kind.card.year), kind.card.line) for name, kind in WRAPPERS.items() if kind.card]
    lines = [*aligned(rows), *broken, "", WRAPPERS_HEAD, *aligned(cards)]
    return "\n".join([*lines, "", wrapped(METHODS_FOOT, margin=0)])


def card_text(info: MethodInfo) -> str:
    """Return everything that is known of a method without running it."""
    from holotype.methods import METHODS
    from holotype.runs.method_info import stage_line

    head, points = f"{info.name}{f': {info.title}' if info.title else ''}\nIt has no card.", ""
    if card := info.card:
        head = f"{card.title} ({info.name}), {card.year}\n{wrapped(card.paper)}\n\n{wrapped(card.line)}"
        points = "\n".join(f"- {wrapped(point, '  ').strip()}" for point in card.differs)
    training = "Nothing is trained: it clusters the features as they are."
    if info.stages:
        lines = [f"  {stage_line(stage, info.epochs)}" for stage in info.stages]
        training = "\n".join([f"Stages (token cache: {info.cache}; CUDA graph: {info.capture})", *lines])
    settings = [
        f"{row.key} = {row.value}    [{row.type}]" + (f"\n{wrapped(row.help, '    ')}" if row.help else "")
        for row in info.settings
    ]
    sections = {
        "What it computes": info.computes,
        f"Settings (--{info.settings[0].key.replace('_', '-') if info.settings else ''} VALUE)": "\n".join(
            settings
        ),
        "Settings by data set": values_text(info.recipes),
        "Presets (--preset NAME)": presets_text(info),
        "What differs from the publication": "\n\n".join(filter(None, [points, info.differs])),
        "Published": published_text(info.name),
    }
    parts = [f"{title}\n{textwrap.indent(text, '  ')}" for title, text in sections.items() if text]
    more = f"holotype train {info.name} DATASET --help lists all settings, those of training too."
    if info.name in METHODS:
        more += f"\nWhat we measured is in docs/methods/{info.name}.md of the repository."
    return "\n\n".join([head, training, *parts, more])


def presets_text(info: MethodInfo) -> str:
    """Return a paragraph for each preset, with what it costs."""
    lines = []
    for name, values in info.presets.items():
        if values:
            lines.append(values_text({name: values}))
            lines += [wrapped(f"{name} {info.costs[name]}.", "  ")] if name in info.costs else []
    return "\n".join(lines)


def values_text(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a paragraph for each data set or preset."""
    from holotype.config.parse import value_text
    from holotype.runs.method_info import recipe_title

    paragraphs = []
    for name, values in settings.items():
        line = ", ".join(f"{key} = {value_text(value)}" for key, value in values.items())
        paragraphs.append(wrapped(f"{recipe_title(name)}: {line}"))
    return "\n".join(paragraphs)


def published_text(name: str) -> str:
    """Return a line for each data set; a star where the numbers cannot be right."""
    from holotype.runs.method_info import published_rows
    from holotype.runs.tables import read_published

    rows, content = published_rows(name), read_published()
    if not rows:
        return "Nothing is printed of it in the table that the other methods are compared by."
    lines, star = [f"{'':<12}{'All':>6}{'Old':>6}{'New':>6}{'p':>7}"], {True: " ", False: "*"}
    for dataset, scores, p in rows:
        cells = f"{scores.all:6.1f}{scores.old:6.1f}{scores.new:6.1f}{star[scores.lawful]}"
        lines.append(f"{dataset:<12}{cells}{f'{p.p:6.2f}{star[p.lawful]}' if p else ''}".rstrip())
    notes = [f"{content['paper']}; {content['setting']}.", "p = (All - k-means) / (SimGCD - k-means)."]
    if "*" in "".join(lines):
        notes.append(
            "* cannot be right, or rests on what cannot: All is not r Old + (1 - r) New, however rounded."
        )
    return "\n".join([*lines, *map(wrapped, notes)])


def backbones_command(options: BackbonesOptions) -> int:
    if options.use == "fetch":
        return download_command(options)
    if options.name is not None or options.to is not None:
        raise InputError("A name and --to belong to fetch; write holotype backbones fetch NAME --to DIR.")
    from holotype.models.zoo import RECOMMENDED, USES

    if options.use is not None and options.use not in USES:
        raise InputError(f"There is no list for {options.use!r}; the lists are {', '.join(USES)}.")
    uses = [options.use] if options.use else list(USES)
    wanted = [backbone for use in uses for backbone in RECOMMENDED[use]]
    speeds, source = measured_speeds(wanted, options.device) if options.measure else recorded_speeds()
    head, *lines = aligned([BACKBONES_HEAD, *(speed_cells(one, speeds) for one in wanted)], right=(1, 2, 3))
    rest = iter(lines)
    for use in uses:
        echo(f"{use}: {USES[use]}\n  {head}")
        for backbone in RECOMMENDED[use]:
            echo(f"  {next(rest)}\n      {backbone.words}")
        echo("")
    echo(wrapped(f"{source} {BACKBONES_FOOT}", margin=0))
    return 0


def download_command(options: BackbonesOptions) -> int:
    """Write one .safetensors file that --backbone takes anywhere."""
    if options.name is None:
        raise InputError("fetch needs a name; write holotype backbones fetch NAME --to DIR.")
    if options.measure:
        raise InputError("--measure belongs to the lists; leave it out of fetch.")
    from holotype.models.backbone import download_backbone
    from holotype.models.zoo import licence_text
    from holotype.utils.text import format_bytes

    done = download_backbone(options.name, options.to or Path())
    tags = done.tags
    echo(licence_text(tags["source"], tags["license"]))
    echo(f"{done.file}: {format_bytes(done.nbytes)}, {tags['timm']}, {tags['image_size']} pixels.")
    echo(f"Take it along; no network is needed there: holotype discover photos/ --backbone {done.file.name}")
    return 0


def recorded_speeds() -> tuple[Speeds, str]:
    """Return speeds as they were measured for the documents, and where."""
    from holotype.models.zoo import Speed

    content = json.loads((files("holotype.models") / "speeds.json").read_text(encoding="utf-8"))
    words = f"Seconds are from a record made on {content['hardware']}, not here; --measure measures on this machine."
    speeds = {}
    for key, speed in content["networks"].items():
        arch, size = key.split()
        speeds[arch, int(size)] = Speed(speed["parameters"], speed["milliseconds"])
    return speeds, words


def measured_speeds(wanted: Iterable[RecommendedBackbone], device: str) -> tuple[Speeds, str]:
    """Return speeds on this machine, now."""
    import torch

    from holotype.models.zoo import measure_speed
    from holotype.runs.record import hardware
    from holotype.utils.device import Device

    compute = Device.on(device)
    networks = sorted({(backbone.arch, backbone.image_size) for backbone in wanted})
    speeds = {key: measure_speed(*key, compute.device, compute.trunk_dtype) for key in networks}
    threads = f", {torch.get_num_threads()} threads" if compute.device.type == "cpu" else ""
    words = f"Seconds were measured now, on {hardware(compute.device)}{threads}, without reading the images."
    return speeds, words


def speed_cells(backbone: RecommendedBackbone, speeds: Speeds) -> Sequence[str]:
    """Return the cells of a line of the list."""
    from holotype.models.zoo import has_conditions

    speed = speeds.get((backbone.arch, backbone.image_size))
    size, seconds = (f"{speed.parameters / 1e6:.0f}", f"{speed.milliseconds:.1f}") if speed else ("", "")
    licence = backbone.licence + ("*" if has_conditions(backbone.licence) else "")
    return backbone.name, size, str(backbone.image_size), seconds, licence


def data_command(options: DataOptions) -> int:
    from holotype.data.datasets.registry import BENCHMARKS, check_benchmark, read_dataset_info

    if options.action == "check":
        if options.name is None:
            raise InputError(f"holotype data check needs a NAME: {', '.join(BENCHMARKS)}.")
        report = check_benchmark(options.name, options.root)
        echo(report)
        return 0 if report.ok else 2
    if options.name or options.root:
        raise InputError("A name and --root belong to check; write holotype data check NAME --root DIR.")
    for name in BENCHMARKS:
        facts = read_dataset_info(name)
        known = f"{len(facts.split.known)} of {facts.classes} classes known"
        echo(f"{name:<15} {facts.title}; {known}; {facts.origin}")
    return 0
