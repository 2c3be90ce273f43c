"""A network with a text tower (CLIP, SigLIP, BioCLIP), as open_clip has them: how near images are to words.

The name is open_clip's: hf-hub:imageomics/bioclip, or a folder with open_clip_config.json and the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from holotype.errors import InputError
from holotype.models.zoo import patch_torchvision

TEMPLATES = ("a photo of a {}.", "a picture of {}.", "a close-up of a {}.")
"""Sentences that a word is put into; their mean stands for it."""
BATCH = 64


class TextTower:
    """Both towers, ready to encode."""

    def __init__(self, name: str, device: str = "cpu") -> None:
        """name: open_clip's, or a folder. Raises InputError where it cannot be had."""
        patch_torchvision()
        try:
            import open_clip
        except ImportError as error:
            raise InputError("Words need open_clip; pip install 'holotype[names]'.") from error
        where = f"local-dir:{name}" if Path(name).is_dir() else name
        try:
            self.model, self.look = open_clip.create_model_from_pretrained(where, device=device)
            self.tokens: Any = open_clip.get_tokenizer(where)
        except Exception as error:  # hubs, files and configurations fail in many ways
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"The network {name} cannot be loaded ({reason}); name one of open_clip as hf-hub:OWNER/NAME, or a "
                "folder with open_clip_config.json."
            ) from error
        self.model, self.device, self.name = self.model.eval(), device, name

    @property
    def scale(self) -> float:
        """What cosines are multiplied by before they are compared."""
        return float(self.model.logit_scale.detach().exp())

    @torch.no_grad()
    def encode_images(self, images: Sequence[Image.Image]) -> np.ndarray:
        """Return (n, D) float32 at length 1."""
        ready = [self.look(image) for image in images]
        parts = [torch.stack(ready[at : at + BATCH]) for at in range(0, len(ready), BATCH)]
        return _joined([self.model.encode_image(part.to(self.device)) for part in parts])

    @torch.no_grad()
    def encode_words(self, words: Sequence[str]) -> np.ndarray:
        """Return (n, D) float32 at length 1: the mean over the templates."""
        total: Any = 0.0
        for template in TEMPLATES:
            texts = [template.format(word) for word in words]
            parts = [
                self.tokens(texts[at : at + BATCH]).to(self.device) for at in range(0, len(texts), BATCH)
            ]
            total = total + _joined([self.model.encode_text(part) for part in parts])
        return np.asarray(total / np.linalg.norm(total, axis=1, keepdims=True), np.float32)


def _joined(parts: Sequence[Tensor]) -> np.ndarray:
    return F.normalize(torch.cat(list(parts)).float(), dim=-1).cpu().numpy()
