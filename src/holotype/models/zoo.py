"""Model zoo: timm networks that fit, their licences and speed, and a short list of recommended backbones.

timm is imported inside the functions: it takes seconds.

Licences are those that the weights were published under when the list was made; loading prints what holds then.
"""

from __future__ import annotations

import json
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from holotype.errors import InputError
from holotype.models.tail import Model
from holotype.utils.text import did_you_mean

FREE_LICENCES = frozenset(
    {"apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "cc0-1.0", "cc-by-4.0", "isc", "unlicense"}
)
"""Use of any kind, results and fine-tunes included, with no more asked than to keep the notice."""
UNKNOWN = "unknown"
NO_COMMERCE = re.compile(r"(^|-)nc(-|$)|non-?commercial|research|amlr", re.IGNORECASE)
"""Of licences that forbid commercial use: cc-by-nc-4.0, fair-noncommercial-research-license, apple-amlr."""
CUSTOM_TERMS = {
    "dinov3-license": "Meta's DINOv3 licence: whoever passes on the weights, or a model made from them, passes on its "
    "terms, and some uses are forbidden (https://ai.meta.com/resources/models-and-libraries/dinov3-license)",
    "sapiens2-license": "Meta's Sapiens2 licence, with terms of its own",
    "apple-ascl": "Apple's sample code licence, with terms of its own",
}


SPEED_BATCH = 4
"""Images in a pass that is timed."""
ENOUGH_SECONDS, MIN_PASSES = 0.5, 2
"""Seconds and passes after which the best time is taken."""
Clock = Callable[[], float]


_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_SYMPTOM = "torchvision::nms does not exist"

COMPILER = "torch._dynamo"

# The schemas vanish with the object that defined them, so it lives as long as the process.
_library: torch.library.Library | None = None


def patch_torchvision() -> bool:
    """Import torchvision, which timm imports, beside a torch build that lacks its compiled operators.

    Where torch is a CPU build and torchvision the stock wheel, its import stops with `operator torchvision::nms does
    not exist`, because it describes two operators (`nms`, `qnms`) to the compiler. Nothing here calls either, so it is
    enough that they have a schema. Every other failure is passed on as it is. Idempotent.

    Returns:
        Whether the schemas were needed.
    """
    global _library
    try:
        _import_torchvision()
    except (RuntimeError, ImportError) as error:
        if _SYMPTOM not in str(error) or _library is not None:
            raise
        _library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS:
            _library.define(schema)
        _import_torchvision()
    return _library is not None


def _import_torchvision() -> None:
    """Let torchvision ask for torch's compiler when it needs it, and not as it is imported: that takes more than a
    second of every command. Where it asks for more than this one function, it is imported as it would be."""
    try:
        with _compiler_later():
            import torchvision
    except (ImportError, AttributeError) as error:
        if COMPILER not in str(error):
            raise
        import torchvision  # noqa: F401


@contextmanager
def _compiler_later() -> Iterator[None]:
    names = (COMPILER, f"{COMPILER}.utils")
    if COMPILER in sys.modules or "torchvision" in sys.modules:
        yield
        return

    def is_compile_supported(device_type: str) -> bool:
        from torch._dynamo.utils import is_compile_supported as found

        return bool(found(device_type))

    for name in names:
        sys.modules[name] = ModuleType(name)
    vars(sys.modules[names[1]])["is_compile_supported"] = is_compile_supported
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


def import_timm() -> ModuleType:
    """timm, which takes seconds to import."""
    patch_torchvision()  # timm imports torchvision
    with warnings.catch_warnings():
        # tqdm's remark in a notebook without ipywidgets; none of its bars is shown
        warnings.filterwarnings("ignore", message="IProgress not found")
        with _undecorated():
            import timm

    return timm


@contextmanager
def _undecorated() -> Iterator[None]:
    """timm keeps the compiler out of one loop, of networks that are not for us, by a decorator that imports it."""
    before = torch.compiler.disable
    torch.compiler.disable = lambda fn=None, *_, **__: (lambda own: own) if fn is None else fn
    try:
        yield
    finally:
        torch.compiler.disable = before


def check_name(name: str, *, with_weights: bool) -> None:
    """Refuse names that timm does not know (or has no weights for), with the nearest ones it does."""
    timm = import_timm()
    tag_known = "." not in name or name in timm.list_pretrained()
    if timm.is_model(name) and tag_known:
        if with_weights and not timm.is_model_pretrained(name):
            raise InputError(
                f"timm has no weights for {name}: give the path of a .safetensors file with arch {name}, mean and std."
            )
        return
    families = ["vit_*", "eva*", "deit3_*"]
    known = [*timm.list_models(families), *timm.list_pretrained(families)]
    hint = did_you_mean(name, known, "timm.list_pretrained() lists those it knows.")
    raise InputError(f'timm knows no network "{name}": {hint}')


def has_conditions(licence: str) -> bool:
    return licence.lower() not in FREE_LICENCES


def licence_terms(licence: str) -> str:
    """What somebody must know before they use the weights for more than a look; "" for a free licence."""
    if not has_conditions(licence):
        return ""
    if licence in ("", UNKNOWN):
        return "Nobody says under which licence its weights are; find out before you publish or sell what comes of it."
    if licence.lower() in CUSTOM_TERMS:
        return f"Its weights are under {CUSTOM_TERMS[licence.lower()]}."
    if NO_COMMERCE.search(licence):
        return f"Its weights are under {licence}, which forbids commercial use, of models made from them too."
    return f"Its weights are under {licence}, with terms of its own; read them before you pass on a model made of them."


def licence_text(name: str, licence: str) -> str:
    """The line that is printed when weights are loaded."""
    words = licence_terms(licence)
    return f"Backbone {name}: {words}" if words else f"Backbone {name}: licence {licence}."


def licence_of(name: str) -> str:
    """Licence of timm's weights of that name; "" where it says none."""
    return str(import_timm().get_pretrained_cfg(name).license or "")


def licence_of_files(arch: str) -> str:
    """What a file with this network is under, as far as the name tells: with a tag, the licence of these weights.

    Without one it may be anybody's work, unless timm knows the network by weights with strings attached alone, as of
    DINOv3; then these. Else "".
    """
    if "." in arch:
        return licence_of(arch)
    found = sorted({licence_of(name) for name in import_timm().list_pretrained(f"{arch}.*")})
    return " or ".join(found) if all(has_conditions(licence) for licence in found) else ""


def model_outline(arch: str, **settings: object) -> Model:
    """The network without storage: what it is, before anything is downloaded."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        model = build_untrained(arch, **settings)
    from timm.models.eva import Eva
    from timm.models.vision_transformer import VisionTransformer

    kinds: tuple[type[nn.Module], ...] = (VisionTransformer, Eva)
    same = ("forward_features", "forward_head", "pool")
    if not any(all(getattr(type(model), f, None) is getattr(kind, f) for f in same) for kind in kinds):
        raise InputError(
            f"{arch} is a {type(model).__name__}, not a plain vision transformer, so it has no last blocks "
            "to train on their own: choose a ViT of timm (DINO, DINOv2, DINOv3, CLIP, SigLIP, MAE, EVA)."
        )
    return model


def build_untrained(arch: str, **settings: object) -> Model:
    """The network before its weights, which are not drawn where it can do without."""
    timm = import_timm()
    try:
        return timm.create_model(arch, pretrained=False, num_classes=0, weight_init="skip", **settings)
    except TypeError:  # not every class of networks has that setting
        return timm.create_model(arch, pretrained=False, num_classes=0, **settings)


@dataclass(frozen=True)
class RecommendedBackbone:
    """A backbone of the list."""

    name: str
    """As --backbone takes it."""
    arch: str
    """timm's network, by which size and speed can be told without its weights."""
    licence: str
    words: str
    image_size: int = 224


@dataclass(frozen=True)
class Speed:
    """Of one network on one device."""

    parameters: int
    milliseconds: float
    """An image, whole network, forward: as many seconds for 1,000 images."""


def measure_speed(
    arch: str,
    image_size: int,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    clock: Clock = time.perf_counter,
) -> Speed:
    """Build the network with random weights and time it; nothing is fetched."""
    with torch.random.fork_rng(devices=[]):
        model: nn.Module = build_untrained(arch, img_size=image_size)
    model = model.eval().requires_grad_(False).to(device, dtype)
    images = torch.zeros(SPEED_BATCH, 3, image_size, image_size, device=device, dtype=dtype)
    seconds = fastest_pass(lambda: model(images), device, clock)
    return Speed(sum(p.numel() for p in model.parameters()), 1000 * seconds / SPEED_BATCH)


@torch.no_grad()
def fastest_pass(run: Callable[[], object], device: torch.device, clock: Clock = time.perf_counter) -> float:
    """Seconds of the fastest of several passes after a first one that warms up.

    clock: time.process_time counts what the processor does for us alone, whoever else it works for.
    """
    run()
    best, started, passes = float("inf"), clock(), 0
    while passes < MIN_PASSES or clock() - started < ENOUGH_SECONDS:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        begun = clock()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best, passes = min(best, clock() - begun), passes + 1
    return best


_LISTS = json.loads((Path(__file__).parent / "recommended.json").read_text(encoding="utf-8"))
USES: dict[str, str] = {use: content["images"] for use, content in _LISTS.items()}
"""The kinds of images that there are lists for, in words."""
RECOMMENDED = {
    use: tuple(RecommendedBackbone(**x) for x in lists["backbones"]) for use, lists in _LISTS.items()
}
"""The best first; none of the first ones has strings attached."""
