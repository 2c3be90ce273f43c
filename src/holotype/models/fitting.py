"""Weights of a file into a network: whatever does not fit is told, and half precision becomes float32."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from holotype.errors import InputError
from holotype.models.layouts import State, in_timms_names
from holotype.models.networks import blank, import_timm
from holotype.models.origins import Origin
from holotype.models.whole_tail import Model

REGISTERS = ("reg_token", "register_tokens", "storage_tokens")
"""Names of registers, here and in the original repositories."""


def network_of(origin: Origin, file: Path, size: int) -> Model:
    """The network of `origin` for images of `size` pixels, with the weights of `file`."""
    model = blank(origin.arch, img_size=size, **origin.settings)
    state = in_timms_names(read_state(file), str(file))
    state = {k: v.float() if v.is_floating_point() else v for k, v in state.items()}
    _check_registers(state, model, origin.arch, file)
    state = _without_zero_biases(state, model, origin.arch, file)
    try:
        state = _filter(model)(state, model)  # resamples positions for another image size
    except (KeyError, RuntimeError) as error:
        raise InputError(f"The weights in {file} do not fit {origin.arch} ({error}): check arch.") from error
    own = model.state_dict()
    kept = {k: v for k, v in state.items() if not k.startswith("head.")}  # a classifier we do not use
    wrong = {
        "missing": [k for k in own if k not in kept],
        "unexpected": [k for k in kept if k not in own],
        "of another shape": [k for k in own if k in kept and own[k].shape != kept[k].shape],
    }
    if any(wrong.values()):
        told = "; ".join(f"{len(keys)} {what}: {', '.join(keys[:3])}" for what, keys in wrong.items() if keys)
        raise InputError(
            f"The weights in {file} do not fit {origin.arch} ({told}): check arch and image_size."
        )
    model.load_state_dict(kept)
    return model


def read_state(file: Path) -> State:
    """A safetensors file, or a checkpoint of the hub; of the latter nothing but tensors is read."""
    from safetensors.torch import load_file

    if file.suffix != ".bin":
        return dict(load_file(file))
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{file} is no whole checkpoint of tensors ({type(error).__name__}): delete it, and run the same command "
            "again."
        ) from error
    found = found.get("state_dict", found) if isinstance(found, dict) else {}
    return {str(name): value for name, value in found.items() if isinstance(value, Tensor)}


def _check_registers(state: State, model: Model, arch: str, file: Path) -> None:
    """Name the network that does fit, where one of the two has registers and the other has none."""
    own = getattr(model, "reg_token", None)
    has = 0 if own is None else own.shape[1]
    there = next((state[name].shape[-2] for name in REGISTERS if name in state), 0)
    if there == has or "cls_token" not in state:
        return
    base, dot, tag = arch.partition(".")
    twin = re.sub(r"_reg\d+", "", base)
    twin = re.sub(r"(_patch\d+)", rf"\1_reg{there}", twin) if there else twin
    known = twin != base and import_timm().is_model(twin)
    advice = f"use arch {twin}{dot}{tag}" if known else "use the arch that they were made for"
    counts = (f"{there} registers" if there else "no registers", f"{has}" if has else "none")
    raise InputError(f"The weights in {file} hold {counts[0]}, but {arch} has {counts[1]}: {advice}.")


def _without_zero_biases(state: State, model: Model, arch: str, file: Path) -> State:
    """DINOv3 exists with and without biases in its attention; those of zeros may go, others may not."""
    if "storage_tokens" not in state or getattr(model.blocks[0].attn, "q_bias", 0) is not None:
        return state
    biases = [name for name in state if name.endswith(".attn.qkv.bias")]
    if any(state[name].any() for name in biases):
        base, dot, tag = arch.partition(".")
        raise InputError(
            f"The weights in {file} have biases in their attention, which {arch} leaves out: use arch "
            f"{base}_qkvb{dot}{tag}."
        )
    return {name: value for name, value in state.items() if name not in biases}


def _filter(model: Model) -> Callable[..., State]:
    """timm's own translation of published checkpoints into its names."""
    from timm.models import eva, vision_transformer

    if isinstance(model, eva.Eva):
        return eva.checkpoint_filter_fn
    return partial(vision_transformer.checkpoint_filter_fn, adapt_layer_scale=True)
