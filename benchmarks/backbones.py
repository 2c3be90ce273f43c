"""What each of 46 networks of timm gets here: its tail, how exact that is, and how long an image takes.

    python benchmarks/backbones.py [--only NAME ...] [--out experiments/results/backbones.jsonl#cpu]
    python experiments/exhibits.py docs/backbones.md        writes the table

Weights are random, since speed and exactness do not depend on them: nothing is fetched. Exactness is the largest
difference between tail(trunk(image)) and the network itself, in double precision, as a share of the largest number;
that of gradients is over all parameters of the last block. It is taken of networks cut to three blocks. Large networks
are cut for their time as well, which the table says. Time is that of one core, whoever else it works for. It takes
about ten minutes and 3 GB; rows are written as they come, and --only replaces some of them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holotype.config.schema import BackboneConfig
from holotype.errors import InputError
from holotype.models.backbone import find_pool, load_backbone, set_pool
from holotype.models.tail import Model, WholeTail, split_backbone
from holotype.models.zoo import (
    RECOMMENDED,
    fastest_pass,
    import_timm,
    licence_of,
    measure_speed,
    model_outline,
)
from holotype.runs.record import commit
from holotype.utils.atomic import write_text
from measure import has_record, one_sentence, read_record, script_parser, write_record

TOP = Path(__file__).resolve().parent.parent
SPEEDS = TOP / "src" / "holotype" / "models" / "speeds.json"
"""What `holotype backbones` shows where nobody has measured."""
BATCH = 2
FEW = 3
"""Blocks of a network whose exactness is looked at."""
NETWORKS: dict[str, tuple[tuple[str, int | None], ...]] = {
    "ViT": (
        ("vit_tiny_patch16_224.augreg_in21k", None),
        ("vit_small_patch16_224.augreg_in21k", None),
        ("vit_base_patch16_224.augreg_in21k", None),
        ("vit_base_patch32_224.augreg_in21k", None),
        ("vit_large_patch16_224.augreg_in21k", 4),
    ),
    "DINO": (
        ("vit_small_patch16_224.dino", None),
        ("vit_base_patch16_224.dino", None),
        ("vit_small_patch8_224.dino", 4),
        ("vit_base_patch8_224.dino", 3),
    ),
    "MAE": (("vit_base_patch16_224.mae", None),),
    "DINOv2": (
        ("vit_small_patch14_dinov2.lvd142m", None),
        ("vit_base_patch14_dinov2.lvd142m", None),
        ("vit_large_patch14_dinov2.lvd142m", 4),
        ("vit_giant_patch14_dinov2.lvd142m", 3),
    ),
    "DINOv2, registers": (
        ("vit_small_patch14_reg4_dinov2.lvd142m", None),
        ("vit_base_patch14_reg4_dinov2.lvd142m", None),
    ),
    "DINOv3": (
        ("vit_small_patch16_dinov3.lvd1689m", None),
        ("vit_small_plus_patch16_dinov3.lvd1689m", None),
        ("vit_base_patch16_dinov3.lvd1689m", None),
        ("vit_base_patch16_dinov3_qkvb.lvd1689m", 4),
        ("vit_large_patch16_dinov3.lvd1689m", 4),
        ("vit_huge_plus_patch16_dinov3.lvd1689m", 3),
    ),
    "EUPE": (("vit_tiny_patch16_dinov3_qkvb.eupe_lvd1689m", None),),
    "CLIP": (
        ("vit_base_patch32_clip_224.openai", None),
        ("vit_base_patch16_clip_224.laion2b", None),
        ("vit_base_patch16_clip_quickgelu_224.openai", 4),
        ("vit_large_patch14_clip_224.openai", 4),
    ),
    "SigLIP": (
        ("vit_base_patch16_siglip_224.webli", None),
        ("vit_base_patch16_siglip_224.v2_webli", 4),
        ("vit_so400m_patch14_siglip_224.webli", 3),
    ),
    "EVA": (("eva_giant_patch14_clip_224.laion400m", 3),),
    "EVA02": (
        ("eva02_tiny_patch14_224.mim_in22k", None),
        ("eva02_small_patch14_224.mim_in22k", None),
        ("eva02_base_patch16_clip_224.merged2b", None),
    ),
    "Perception Encoder": (("vit_pe_core_base_patch16_224.fb", None),),
    "DeiT3": (("deit3_small_patch16_224.fb_in1k", None), ("deit3_base_patch16_224.fb_in1k", 4)),
    "rotary ViT": (
        ("vit_small_patch16_rope_224.naver_in1k", None),
        ("vit_small_patch16_rope_mixed_224.naver_in1k", None),
    ),
    "TIPSv2": (("vit_base_patch14_reg1_tipsv2.webli", 4),),
    "LingBot": (("vit_small_patch16_lingbot.robbyant", None),),
    "I-JEPA": (("vit_huge_patch14_gap_224.in1k_ijepa", 3),),
    "BEiT": (("beit_base_patch16_224.in22k_ft_in22k", None),),
    "Swin": (("swin_tiny_patch4_window7_224.ms_in1k", None),),
    "ConvNeXt": (("convnext_tiny.dinov3_lvd1689m", None),),
    "ResNet": (("resnet50.a1_in1k", None),),
}
"""Family to names with tags; a number cuts the network to so many blocks."""


def look_at(family: str, name: str, blocks: int | None) -> dict[str, Any]:
    """A row of the table; of a network that is refused, the sentence."""
    row: dict[str, Any] = {"family": family, "name": name, "licence": licence_of(name)}
    try:
        outline = model_outline(name)
        size = load_size(name)
    except InputError as error:
        return row | {"refused": str(error)}
    whole = len(outline.blocks)
    pool = find_pool(outline, "auto", name)
    mixed = getattr(outline, "rope_mixed", False)  # timm computes these positions in single precision only
    model = drawn(name, size, FEW, torch.float32 if mixed else torch.float64)
    set_pool(model, pool)
    row |= {
        "pixels": size,
        "blocks": [blocks or whole, whole],
        "tokens": model.patch_embed.num_patches + model.num_prefix_tokens,
        "feature": {"token": "CLS", "avg": "mean", "map": "attention pool"}[model.global_pool],
        "timm": not pool,
        "double": not mixed,
    }
    return row | exactness(model, size) | times(name, size, blocks, pool)


def load_size(name: str) -> int:
    """Side of the images that the network gets here by default."""
    return load_backbone(BackboneConfig(name), fetch=False).image_size if "dinov2" in name else native(name)


def native(name: str) -> int:
    side: int = model_outline(name).pretrained_cfg["input_size"][-1]
    return side


def drawn(name: str, size: int, blocks: int | None, dtype: torch.dtype) -> Model:
    """The network with random weights of a size at which every part of it counts."""
    settings: dict[str, Any] = {"img_size": size} | ({"depth": blocks} if blocks else {})
    torch.manual_seed(0)
    model = import_timm().create_model(name, pretrained=False, num_classes=0, **settings).eval().to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            fan_in = parameter[0].numel() if parameter.ndim > 1 else 10
            parameter.normal_(std=fan_in**-0.5)
    return model


def exactness(model: Model, size: int) -> dict[str, float | str]:
    """How far trunk and tail are from the network that they are made of, in values and gradients."""
    like = next(model.parameters())
    image = torch.randn(1, 3, size, size, dtype=like.dtype, generator=torch.Generator().manual_seed(1))
    model.requires_grad_(False)
    last = model.blocks[-1].requires_grad_(True)
    expected = model(image)
    weight = torch.randn_like(expected)
    learning = [parameter for parameter in last.parameters() if parameter.requires_grad]
    theirs = torch.autograd.grad(expected, learning, weight, allow_unused=True)
    trunk, tail = split_backbone(model, 1)
    found = tail(trunk(image))
    ours = torch.autograd.grad(found, learning, weight, allow_unused=True)
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
    return {
        "tail": type(tail).__name__,
        "values": apart(found.detach(), expected.detach()),
        "gradients": max(apart(a, b) for a, b in pairs),
    }


def apart(found: Tensor, expected: Tensor) -> float:
    return ((found - expected).abs().max() / expected.abs().max().clamp_min(1e-30)).item()


def times(name: str, size: int, blocks: int | None, pool: str) -> dict[str, float]:
    """Milliseconds an image in single precision: the network forward; tail and whole block forward and backward."""
    model, cpu = drawn(name, size, blocks, torch.float32), torch.device("cpu")
    set_pool(model, pool)
    images = torch.randn(BATCH, 3, size, size)
    network = fastest_pass(lambda: model(images), cpu, time.process_time)
    whole = WholeTail(model, len(model.blocks) - 1)
    trunk, tail = split_backbone(model, 1)
    with torch.no_grad():
        tokens = trunk(images)
        prepared = tail.prepare(tokens)
    return {
        "network_ms": 1000 * network / BATCH,
        "tail_ms": 1000 * step_seconds(tail, prepared) / BATCH,
        "whole_ms": 1000 * step_seconds(whole, tokens) / BATCH,
    }


def step_seconds(module: nn.Module, given: Tensor) -> float:
    def step() -> None:
        with torch.enable_grad():
            module.zero_grad()
            module(given).sum().backward()

    return fastest_pass(step, torch.device("cpu"), time.process_time)


def recommended_speeds() -> dict[str, dict[str, float]]:
    """Of the networks that `holotype backbones` lists."""
    wanted = {(one.arch, one.image_size) for several in RECOMMENDED.values() for one in several}
    found = {}
    for arch, size in sorted(wanted):
        speed = measure_speed(arch, size, torch.device("cpu"), clock=time.process_time)
        found[f"{arch} {size}"] = {
            "parameters": speed.parameters,
            "milliseconds": round(speed.milliseconds, 1),
        }
    return found


def facts() -> dict[str, Any]:
    return {
        "hardware": "1 CPU core",
        "torch": torch.__version__,
        "timm": import_timm().__version__,
        "commit": commit(),
    }


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = script_parser(__doc__)
    parser.add_argument("--only", nargs="*", help="names with tags, families, or recommended")
    parser.add_argument("--out", default=str(TOP / "experiments" / "results" / "backbones.jsonl#cpu"))
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    out = Path(given.out)
    rows = (
        {row["name"]: row for row in read_record(out, ["rows"], "backbones.py")["rows"]}
        if given.only and has_record(out)
        else {}
    )
    for family, networks in NETWORKS.items():
        for name, blocks in networks:
            if given.only and family not in given.only and name not in given.only:
                continue
            started = time.monotonic()
            rows[name] = look_at(family, name, blocks)
            told = [rows[one] for several in NETWORKS.values() for one, _ in several if one in rows]
            write_record(out, facts() | {"rows": told})
            print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    if not given.only or given.only == ["recommended"]:
        write_text(SPEEDS, json.dumps(facts() | {"networks": recommended_speeds()}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
