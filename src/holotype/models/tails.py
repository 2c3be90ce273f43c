"""The trained end of a backbone: its last block(s), then the model's own norm and pool.

Five tails behind one call, `tail(trunk(images))` -> features (B, D); trunk + tail = the model:

- AbsorbedTail: plain attention and the CLS token as feature. Attention runs on the normalised tokens themselves,
  and keys and values are never formed.
- RotaryTail: the same with rotary positions: keys of all tokens, values never formed.
- KVTail: the same with norms on queries and keys: keys and values of all tokens, the rest for the CLS row.
- PoolTail: an attention pool (SigLIP) behind whole blocks; the pool's keys and values are never formed.
- WholeTail: everything else (the mean of the patches, other kinds of block).

Outputs and gradients equal those of the whole blocks. The modules inside are timm's own, under their names
(`blocks.11.attn.qkv.weight`, `norm.weight`, ...). Tokens come in the parameters' type, or under autocast.

A token cache keeps `tail.prepare(tokens)`, all of the tail that does not learn, which are the inputs of a stage on
tokens. The same call takes them: tail(prepare(tokens)) = tail(tokens). They are flat, one row (M D) an image, so that
their shape tells them from tokens; any other shape is refused.
"""

from __future__ import annotations

from torch import nn

from holotype.errors import InputError
from holotype.models.row_tails import AbsorbedTail, KVTail, RotaryTail
from holotype.models.whole_tail import Block, Model, PoolTail, WholeTail, absorbs_pool


def split(model: Model, train_blocks: int) -> tuple[nn.Module, WholeTail]:
    """Take a model apart: trunk(images) -> tokens, tail(tokens) -> features, tail(trunk(x)) = model(x).

    The trunk is the model itself, shortened, in evaluation mode and frozen; the tail owns the last
    `train_blocks` blocks, which alone require gradients, and the frozen norm and pool.
    """
    depth = len(model.blocks)
    check_blocks(train_blocks, depth, type(model).__name__)
    model.requires_grad_(False).eval()
    first = depth - train_blocks
    tail = make_tail(model, first)
    tail.blocks.requires_grad_(True)
    model.blocks = model.blocks[:first]
    model.norm, model.fc_norm, model.attn_pool = nn.Identity(), nn.Identity(), None
    model.reset_classifier(0, "")  # timm's way to say: return the tokens
    return model, tail


def check_blocks(train_blocks: int, depth: int, arch: str) -> None:
    if not 1 <= train_blocks <= depth:
        raise InputError(f"train_blocks is {train_blocks}, but {arch} has {depth} blocks: use 1 to {depth}.")


def make_tail(model: Model, first: int) -> WholeTail:
    """The cheapest exact tail for `model` (timm VisionTransformer or Eva), trained from block `first` on."""
    if absorbs_pool(model):
        return PoolTail(model, first)
    takes_cls = model.global_pool == "token" and model.attn_pool is None and model.cls_token is not None
    return (_row_tail(model) if takes_cls else WholeTail)(model, first)


def _row_tail(model: Model) -> type[WholeTail]:
    """The tail that computes a single row of the last block; the whole one for a block of which it cannot be had."""
    from timm.layers import AttentionRope
    from timm.models import eva
    from timm.models import vision_transformer as vit

    block = model.blocks[-1]
    kinds = {vit.Block: (vit.Attention,), eva.EvaBlock: (eva.EvaAttention, AttentionRope)}
    if type(getattr(block, "attn", None)) not in kinds.get(type(block), ()) or not _is_plain(block):
        return WholeTail
    attn = block.attn
    normed = not (isinstance(attn.q_norm, nn.Identity) and isinstance(attn.k_norm, nn.Identity))
    if type(block) is vit.Block:
        return KVTail if normed else AbsorbedTail
    return RotaryTail if normed or model.rope is not None or attn.qkv is None else AbsorbedTail


def _is_plain(block: Block) -> bool:
    """Whether nothing in the block is dropped or gated, and every query has keys of its own."""
    attn = block.attn
    dropped = attn.attn_drop.p or attn.proj_drop.p or not isinstance(block.drop_path1, nn.Identity)
    return not dropped and getattr(attn, "gate", None) is None and getattr(attn, "num_kv_groups", 1) == 1
