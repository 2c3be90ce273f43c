"""The trained end of a backbone: its last block(s), then the model's own norm and pool.

Three tails behind one call, `tail(tokens (B, N, D)) -> features (B, D)`; trunk + tail = the model:

- AbsorbedTail: plain attention and the CLS token as feature. Only the CLS row of the last block is needed,
  so there is one query per head, and q.(W_k x) = (W_k^T q).x, sum a W_v x = W_v (sum a x): attention
  runs on the normalised tokens themselves, and keys and values are never formed.
- KVTail: the same with norms on queries and keys, which forbid that: keys and values of all tokens, the
  rest for the CLS row.
- WholeTail: everything else (mean or attention pool, rotary positions, other kinds of block).

Outputs and gradients equal those of the whole blocks. The modules inside are timm's own, under their names
(`blocks.11.attn.qkv.weight`, `norm.weight`, ...). Tokens come in the parameters' type, or under autocast.

A token cache keeps `tail.prepare(tokens)`, all of the tail that does not learn, and training then runs
`tail.finish(prepared)`: finish(prepare(tokens)) = tail(tokens).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holotype.errors import InputError

Model = Any
"""A timm VisionTransformer or Eva with num_classes=0; timm has no types that a checker could use."""
Block = Any
"""One of its blocks."""
ALIGNED = 8
"""Numbers of 16 bits in the 16 bytes that a GPU reads at once."""


class WholeTail(nn.Module):
    """The last blocks in full, then the model's norm and pool."""

    rope: Tensor | None

    def __init__(self, model: Model, first: int) -> None:
        """model: a timm VisionTransformer or Eva; first: index of the first trained block."""
        super().__init__()
        from timm.layers import global_pool_nlc

        blocks = dict(enumerate(model.blocks))
        self.blocks = nn.ModuleDict({str(i): block for i, block in blocks.items() if i >= first})
        self.norm = model.norm
        self.attn_pool = model.attn_pool
        self.fc_norm = model.fc_norm
        # Eva's attention pool looks at every token, VisionTransformer's at the patches unless told otherwise.
        include_prefix = getattr(model, "pool_include_prefix", False)
        skips = self.attn_pool is not None and hasattr(model, "pool_include_prefix") and not include_prefix
        self.pool_from = model.num_prefix_tokens if skips else 0
        self.pool = partial(
            global_pool_nlc,
            pool_type=model.global_pool,
            num_prefix_tokens=model.num_prefix_tokens,
            reduce_include_prefix=include_prefix,
        )
        self.rope_per_block = bool(getattr(model, "rope_mixed", False))
        rope = rotary_positions(model)
        self.register_buffer(
            "rope", rope[first:] if self.rope_per_block and rope is not None else rope, False
        )

    def trained(self) -> list[Block]:
        return list(self.blocks.values())

    def run(self, index: int, block: Block, x: Tensor) -> Tensor:
        """One whole block; index counts from the tail's first. (B, N, D) -> (B, N, D)."""
        if self.rope is None:
            return block(x)
        return block(x, rope=self.rope[index] if self.rope_per_block else self.rope)

    def prepare(self, tokens: Tensor) -> Tensor:
        """What is worth keeping of the trunk's output, free of anything that learns. (B, N, D) -> (B, M, D)."""
        return tokens

    def finish(self, prepared: Tensor) -> Tensor:
        """The features (B, D) of what `prepare` returned."""
        features: Tensor = self(prepared)
        return features

    def forward(self, tokens: Tensor) -> Tensor:
        x = tokens
        for i, block in enumerate(self.trained()):
            x = self.run(i, block, x)
        x = self.norm(x)
        x = self.pool(x) if self.attn_pool is None else self.attn_pool(x[:, self.pool_from :])
        return self.fc_norm(x)


class _CLSTail(WholeTail):
    """Earlier trained blocks in full, of the last one only the CLS row."""

    def attend(self, block: Block, tokens: Tensor) -> Tensor:
        """The CLS row of the block's attention branch before the output projection. (B, N, D) -> (B, D)."""
        raise NotImplementedError  # abstract: the two forms below

    def forward(self, tokens: Tensor) -> Tensor:
        *whole, last = self.trained()
        x = tokens
        for i, block in enumerate(whole):
            x = self.run(i, block, x)
        return self.after_attention(last, x[:, 0], self.attend(last, x))

    def after_attention(self, block: Block, row: Tensor, attended: Tensor) -> Tensor:
        """The rest of the last block on its CLS row. row, attended: (B, D) -> features (B, D)."""
        row = row + block.ls1(block.attn.proj(block.attn.norm(attended)))
        row = row + block.ls2(block.mlp(block.norm2(row)))
        return self.fc_norm(self.norm(row))


class AbsorbedTail(_CLSTail):
    """Attention on the normalised tokens: W_k goes into the query, W_v onto the pooled row."""

    def prepare(self, tokens: Tensor) -> Tensor:
        """The CLS row as it is, then all tokens standardised; with one trained block (B, N, D) -> (B, N + 1, D)."""
        if not self._standardises():
            return tokens
        return torch.cat([tokens[:, :1], _standardised(self.trained()[0].norm1, tokens)[0]], dim=1)

    def finish(self, prepared: Tensor) -> Tensor:
        if not self._standardises():
            return super().finish(prepared)
        block = self.trained()[0]
        attended = self.attend_standardised(block, prepared[:, 1:], *_gain_and_shift(block.norm1, prepared))
        return self.after_attention(block, prepared[:, 0], attended)

    def _standardises(self) -> bool:
        """Whether the learnt part of the first norm can be split off: only where no block runs before it."""
        blocks = self.trained()
        return len(blocks) == 1 and isinstance(blocks[0].norm1, nn.LayerNorm)

    def attend(self, block: Block, tokens: Tensor) -> Tensor:
        return self.attend_standardised(block, *_standardised(block.norm1, tokens))

    def attend_standardised(self, block: Block, x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
        """x: (B, N, D) with norm1(tokens) = x * gain + shift."""
        attn = block.attn
        heads, width = attn.num_heads, attn.head_dim
        # The norm's gain and shift go into the query and the pooled row too: no gradient then passes
        # through the (B, N, D) tokens unless an earlier block asks for it.
        w_q, w_k, w_v = attn.qkv.weight.unflatten(0, (3, heads, width))  # each (H, d, D)
        b_q, _, b_v = _bias(attn.qkv).unflatten(0, (3, heads, width))  # the key bias cancels in the softmax
        q = torch.einsum("bc,hdc->bhd", x[:, 0] * gain + shift, w_q) + b_q
        query = torch.einsum("bhd,hdc->bhc", q * attn.scale, w_k) * gain
        pooled = _pool(query, x) * gain + shift  # (B, H, D); in the softmax the shift cancels: it is constant
        return (torch.einsum("bhc,hdc->bhd", pooled, w_v) + b_v).flatten(1)


class KVTail(_CLSTail):
    """Keys and values of all tokens, one query per head."""

    def attend(self, block: Block, tokens: Tensor) -> Tensor:
        attn = block.attn
        heads, width = attn.num_heads, attn.head_dim
        x = block.norm1(tokens)
        weight, bias = attn.qkv.weight, _bias(attn.qkv)
        inner = heads * width
        q = F.linear(x[:, :1], weight[:inner], bias[:inner]).unflatten(-1, (heads, width))
        kv = F.linear(x, weight[inner:], bias[inner:]).unflatten(-1, (2, heads, width))
        k, v = kv.permute(2, 0, 3, 1, 4)  # each (B, H, N, d)
        out = F.scaled_dot_product_attention(attn.q_norm(q.transpose(1, 2)), attn.k_norm(k), v)
        return out.flatten(1)  # (B, H, 1, d) -> (B, H d)


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
    if not _cls_only(model):
        return WholeTail(model, first)
    attn = model.blocks[-1].attn
    plain = isinstance(attn.q_norm, nn.Identity) and isinstance(attn.k_norm, nn.Identity)
    return (AbsorbedTail if plain else KVTail)(model, first)


def rotary_positions(model: Model) -> Tensor | None:
    """The rotary positions at the model's image size, None where it has none; in mixed mode one per block."""
    if getattr(model, "rope", None) is None:
        return None
    like = next(model.parameters())
    blank = torch.zeros(1, 3, *model.patch_embed.img_size, device=like.device, dtype=like.dtype)
    with torch.no_grad():
        _, rope = model._pos_embed(model.patch_embed(blank))
    return rope


def _cls_only(model: Model) -> bool:
    """Is the feature the CLS token, and the last block one of which a single row can be computed?"""
    from timm.models import vision_transformer as vit

    block = model.blocks[-1]
    if type(block) is not vit.Block or type(block.attn) is not vit.Attention:
        return False
    inactive = (
        isinstance(block.drop_path1, nn.Identity) and block.attn.attn_drop.p == block.attn.proj_drop.p == 0
    )
    takes_cls = model.global_pool == "token" and model.attn_pool is None and model.has_class_token
    return takes_cls and inactive and getattr(block.attn, "gate", None) is None


def _standardised(norm: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """norm(x) as (standardised, gain, shift) with norm(x) = standardised * gain + shift."""
    if not isinstance(norm, nn.LayerNorm):
        one = x.new_ones(x.shape[-1])
        return norm(x), one, torch.zeros_like(one)
    # Autocast would write float32 and cast it back for both products; the statistics are float32 anyway.
    with torch.autocast(x.device.type, enabled=False):
        return F.layer_norm(x, norm.normalized_shape, eps=norm.eps), *_gain_and_shift(norm, x)


def _gain_and_shift(norm: nn.LayerNorm, like: Tensor) -> tuple[Tensor, Tensor]:
    """The learnt part of a layer norm; 1 and 0 in the type of `like` where it has none."""
    if norm.weight is None:
        one = like.new_ones(norm.normalized_shape)
        return one, torch.zeros_like(one)
    return norm.weight, torch.zeros_like(norm.weight) if norm.bias is None else norm.bias


def _pool(query: Tensor, x: Tensor) -> Tensor:
    """softmax(query x^T) x, the tokens' mean as each head weighs them. query: (B, H, D), x: (B, N, D) -> (B, H, D)."""
    if not x.is_cuda or x.requires_grad:
        return (query @ x.mT).softmax(dim=-1) @ x
    heads = query.shape[1]
    pooled: Tensor = _AlignedPool.apply(F.pad(query, (0, 0, 0, -heads % ALIGNED)).to(x.dtype), x)
    return pooled[:, :heads]


class _AlignedPool(torch.autograd.Function):
    """The same with the heads last in every product, and no gradient to the tokens.

    Rows of N = 197 weights would lie on odd addresses, for which a GPU has only slow products (3 times slower);
    rows of H heads, filled up to ALIGNED, do not. The backward pass is written out to keep that order in it.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            weight = (x @ query.mT).softmax(dim=1)  # (B, N, H)
            ctx.save_for_backward(weight, x)
            return weight.mT @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        weight, x = ctx.saved_tensors
        with torch.autocast(x.device.type, enabled=False):
            d_weight = x @ grad.mT  # (B, N, H)
            d_score = torch._softmax_backward_data(d_weight, weight, 1, weight.dtype)
            return d_score.mT @ x, None


def _bias(linear: nn.Linear) -> Tensor:
    return linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias
