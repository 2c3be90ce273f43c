"""Weights that do not fit are told with the network that they do fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from holotype.errors import InputError
from holotype.models.weights_io import WeightsOrigin, load_network, read_state

SMALL = {"embed_dim": 48, "depth": 2, "num_heads": 3}
PLAIN, WITH = "vit_small_patch14_dinov2", "vit_small_patch14_reg4_dinov2"


def saved(arch: str, file: Path, **changes: torch.Tensor) -> Path:
    model = timm.create_model(arch, img_size=28, num_classes=0, **SMALL)
    save_file({**model.state_dict(), **changes}, file)
    return file


@pytest.mark.parametrize(
    ("holds", "asked", "says"),
    [
        (
            PLAIN,
            f"{WITH}.lvd142m",
            rf"hold no registers, but {WITH}\.lvd142m has 4: use arch {PLAIN}\.lvd142m\.",
        ),
        (WITH, PLAIN, rf"hold 4 registers, but {PLAIN} has none: use arch {WITH}\."),
    ],
)
def test_registers_are_named(holds: str, asked: str, says: str, tmp_path: Path) -> None:
    file = saved(holds, tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=says):
        load_network(WeightsOrigin("w", asked, file, settings=SMALL), file, 28)
    load_network(WeightsOrigin("w", holds, file, settings=SMALL), file, 28)


def test_biases_of_dinov3_that_would_be_lost_are_told(tmp_path: Path) -> None:
    """As upstream saves them; timm has the network with and without biases, and drops them without a word."""
    arch, file = "vit_small_patch16_dinov3", tmp_path / "w.safetensors"
    state = timm.create_model(arch, img_size=32, num_classes=0, **SMALL).state_dict()
    state = {k.replace("gamma_", "ls").replace("reg_token", "storage_tokens"): v for k, v in state.items()}
    state = {k + ".gamma" if k.endswith(("ls1", "ls2")) else k: v for k, v in state.items()}
    biases = {f"blocks.{n}.attn.qkv.bias": torch.zeros(144) for n in range(2)}
    save_file(state | biases, file)
    load_network(WeightsOrigin("w", arch, file, settings=SMALL), file, 32)
    biases["blocks.1.attn.qkv.bias"][0] = 1
    save_file(state | biases, file)
    with pytest.raises(InputError, match=f"biases .* use arch {arch}_qkvb"):
        load_network(WeightsOrigin("w", arch, file, settings=SMALL), file, 32)
    load_network(WeightsOrigin("w", f"{arch}_qkvb", file, settings=SMALL), file, 32)


def test_a_checkpoint_of_the_hub_is_read_as_tensors_alone(tmp_path: Path) -> None:
    file = tmp_path / "pytorch_model.bin"
    torch.save({"state_dict": {"a": torch.ones(2), "epoch": 3}}, file)
    assert list(read_state(file)) == ["a"]
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match="delete it"):
        read_state(file)
    torch.save({"a": Path("x")}, file)  # whatever would run code
    with pytest.raises(InputError, match="no whole checkpoint of tensors"):
        read_state(file)
