"""Learnt inputs: pixels added to every image (SPTNet), and tokens put into every block (PromptCAL)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from holotype.errors import InputError
from holotype.models.ema import Teacher
from holotype.models.heads import truncated_normal
from holotype.models.tail import WholeTail

FRAME, FRAME_AT = 30, 224
"""Width of the frame in pixels, of an image of so many."""
BORDER = 1
"""Pixels along the edge of each patch that its prompt may change."""
N_PROMPTS = 5
"""Tokens in each block."""
POOLED_PROMPTS = 2
"""How many of the last block's prompts make up the second feature."""

Trunk = Any
"""The frozen part of a timm network inside a `Frozen`, so that nobody who keeps it trains or saves it."""


class PixelPrompt(nn.Module):
    """Normalised images (n, 3, S, S) -> the same with the prompt added: a frame, and the borders of the patches.

    SPT-P is a tensor of the image's size, of which only a border of every patch counts. Both start as normal noise.
    """

    inside: Tensor

    def __init__(self, size: int, patch: tuple[int, int], *, frame: int = 0, border: int = BORDER) -> None:
        """frame: width in pixels of the frame around the image; 0 for the borders of the patches alone."""
        super().__init__()
        self.patches = nn.Parameter(torch.randn(3, size, size))
        self.register_buffer("inside", border_mask(size, patch, border), persistent=False)
        self.frame = frame
        if frame:
            across, between = (3, frame, size), (3, size - 2 * frame, frame)
            self.up, self.down = nn.Parameter(torch.randn(across)), nn.Parameter(torch.randn(across))
            self.left, self.right = nn.Parameter(torch.randn(between)), nn.Parameter(torch.randn(between))

    def forward(self, images: Tensor) -> Tensor:
        if self.frame:
            centre = self.left.new_zeros(3, self.left.shape[1], images.shape[-1] - 2 * self.frame)
            middle = torch.cat([self.left, centre, self.right], dim=2)
            images = images + torch.cat([self.up, middle, self.down], dim=1)
        return images + self.patches * self.inside

    @torch.no_grad()
    def size(self) -> Tensor:
        """Root mean square of what is added, over the pixels that it may touch: about 1 at the start. 0-d."""
        added = self(torch.zeros_like(self.patches)[None])
        return (added.square().sum() / (added != 0).sum().clamp_min(1)).sqrt()


class PromptedTrunk(nn.Module):
    """A network that sees prompted images: tail(trunk(prompt(images))), (n, 3, S, S) -> (n, D)."""

    def __init__(self, trunk: Trunk, tail: WholeTail, prompt: PixelPrompt) -> None:
        super().__init__()
        self.trunk, self.tail, self.prompt = trunk, tail, prompt

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.tail(self.trunk(self.prompt(images)))
        return features

    def of_prompt(self, images: Tensor) -> Tensor:
        """The same with a gradient for the prompt alone."""
        return call_frozen(self.tail, self.trunk(self.prompt(images)))

    def of_model(self, images: Tensor) -> Tensor:
        """(n, 3, S, S) -> (2n, D): plain images, then prompted ones, with a gradient for the tail alone."""
        with torch.no_grad():
            tokens = self.trunk(torch.cat([images, self.prompt(images)]))
        features: Tensor = self.tail(tokens)
        return features


def call_frozen(module: nn.Module, x: Tensor) -> Tensor:
    """module(x) with a gradient for x and none for the module: its parameters keep none, not one of zeros."""
    detached = {name: parameter.detach() for name, parameter in module.named_parameters()}
    result: Tensor = functional_call(module, detached, (x,))
    return result


def border_mask(size: int, patch: tuple[int, int], border: int = BORDER) -> Tensor:
    """(S, S) of 0 and 1: the outermost `border` pixels of every patch."""
    # on the meta device of a trial build, a remainder would import torch's compiler
    inside = ((torch.arange(size, device="cpu") % side, side) for side in patch)
    rows, columns = ((at < border) | (at >= side - border) for at, side in inside)
    return (rows[:, None] | columns[None, :]).float()


def frame_width(size: int) -> int:
    """The published frame in proportion to the image; at least one pixel."""
    return max(1, round(FRAME * size / FRAME_AT))


def patch_size(trunk: Trunk) -> tuple[int, int]:
    """Height and width of a network's patches."""
    height, width = trunk.patch_embed.patch_size
    return int(height), int(width)


class TokenPrompts(nn.Module):
    """Images (n, 3, S, S) -> (n, 2, D): the CLS token, and the mean of the first two prompts, after the last block.

    Every block gets `n_prompts` learnt tokens of its own after CLS, before registers and patches; what the block
    before made of its prompts is dropped. Prompts have no position. Gradients reach them through frozen blocks too.
    """

    def __init__(self, trunk: Trunk, tail: WholeTail, n_prompts: int = N_PROMPTS) -> None:
        super().__init__()
        check_takes_prompts(trunk)
        self.trunk, self.tail = trunk, tail
        depth = len(trunk.blocks) + len(tail.trained())
        self.prompts = nn.Parameter(torch.empty(depth, n_prompts, trunk.embed_dim))
        truncated_normal(self.prompts)

    def forward(self, images: Tensor) -> Tensor:
        x = self.tokens(images)
        cls, prompts = x[:, 0], x[:, 1 : 1 + POOLED_PROMPTS].mean(1)
        return torch.stack([cls, prompts], dim=1)

    def tokens(self, images: Tensor) -> Tensor:
        """All tokens after the last block and norm: (n, 3, S, S) -> (n, 1 + n_prompts + ..., D)."""
        x = embed_patches(self.trunk, images)
        for number, block in enumerate([*self.trunk.blocks, *self.tail.trained()]):
            x = block(self.with_prompts(x, number))
        return self.tail.fc_norm(self.tail.norm(x))

    def with_prompts(self, x: Tensor, number: int) -> Tensor:
        """The input of block `number`: its own prompts stand where those of the block before stood."""
        n = self.prompts.shape[1]
        # shape and not len: an exported graph takes any number of images
        own = self.prompts[number].to(x.dtype).expand(x.shape[0], -1, -1)
        return torch.cat([x[:, :1], own, x[:, 1 + (n if number else 0) :]], dim=1)


class LearnedPrompts(nn.Module):
    """The network with its prompts, and the teacher that follows both."""

    def __init__(self, student: TokenPrompts) -> None:
        super().__init__()
        self.student, self.teacher = student, Teacher(student)


def embed_patches(trunk: Trunk, images: Tensor) -> Tensor:
    """What enters a network's first block, without prompts: (n, 3, S, S) -> (n, N, D)."""
    x = trunk._pos_embed(trunk.patch_embed(images))
    x = x[0] if isinstance(x, tuple) else x  # Eva also returns its rotary positions, which are None here
    x = trunk.norm_pre(x)
    tokens: Tensor = x
    return tokens


def check_takes_prompts(trunk: Trunk) -> None:
    """Refuse a network in which tokens cannot be put after CLS without a position."""
    if getattr(trunk, "cls_token", None) is None:
        raise InputError(
            "Prompt tokens stand beside the CLS token, and this network has none: choose one with a CLS token, for "
            "example vit_base_patch16_224.dino, or another method."
        )
    if getattr(trunk, "rope", None) is not None:
        raise InputError(
            "Prompt tokens have no place among rotary positions, which this network uses: choose one with learnt "
            "positions, for example vit_base_patch16_224.dino, or another method."
        )
