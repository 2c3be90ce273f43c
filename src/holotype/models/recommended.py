"""Which backbone to take for which images: a short list, by what the networks were trained on.

Licences are those that the weights were published under when the list was made; loading prints what holds then.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recommended:
    """A backbone of the list."""

    name: str
    """As --backbone takes it."""
    arch: str
    """timm's network, by which size and speed can be told without its weights."""
    licence: str
    words: str
    image_size: int = 224


USES = {
    "photos": "photographs of things, scenes, art, products",
    "nature": "animals, plants, fungi, camera traps",
    "medical": "radiology, pathology, microscopy",
    "industrial": "parts, surfaces, defects, aerial views: images without faces",
}
DINOV2 = "self-supervised on 142 M curated images; no labels, no text"
RECOMMENDED: dict[str, tuple[Recommended, ...]] = {
    "photos": (
        Recommended(
            "vit_base_patch14_dinov2.lvd142m",
            "vit_base_patch14_dinov2",
            "apache-2.0",
            f"{DINOV2}; what auto takes on a GPU",
        ),
        Recommended(
            "vit_small_patch14_dinov2.lvd142m",
            "vit_small_patch14_dinov2",
            "apache-2.0",
            "the same, smaller; what auto takes on a CPU",
        ),
        Recommended(
            "vit_base_patch16_dinov3.lvd1689m",
            "vit_base_patch16_dinov3",
            "dinov3-license",
            "DINOv2's successor; its licence goes with every model made from it",
            256,
        ),
        Recommended(
            "embedded", "vit_tiny_patch16_224", "mit", "in the package, no network needed; coarse", 128
        ),
    ),
    "nature": (
        Recommended(
            "hf-hub:imageomics/bioclip",
            "vit_base_patch16_clip_224",
            "mit",
            "trained on 10 M images of 450,000 taxa with their names",
        ),
        Recommended(
            "vit_base_patch14_dinov2.lvd142m",
            "vit_base_patch14_dinov2",
            "apache-2.0",
            "where kinds differ by more than taxonomy: poses, behaviour, habitat",
        ),
    ),
    "medical": (
        Recommended(
            "hf-hub:microsoft/BiomedCLIP-PubMedBERT_256-vit_base_patch16_224",
            "vit_base_patch16_224",
            "mit",
            "trained on 15 M figures of papers with captions; its makers mean it for research",
        ),
        Recommended(
            "vit_base_patch14_reg4_dinov2.lvd142m",
            "vit_base_patch14_reg4_dinov2",
            "apache-2.0",
            "for kinds of images that BiomedCLIP never saw",
        ),
    ),
    "industrial": (
        Recommended(
            "vit_base_patch14_reg4_dinov2.lvd142m",
            "vit_base_patch14_reg4_dinov2",
            "apache-2.0",
            f"{DINOV2}; registers keep small details from being drowned",
        ),
        Recommended(
            "vit_small_patch14_reg4_dinov2.lvd142m",
            "vit_small_patch14_reg4_dinov2",
            "apache-2.0",
            "the same, smaller",
        ),
    ),
}
"""The best first; none of the first ones has strings attached."""
