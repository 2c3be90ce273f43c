"""Tails whose feature is the CLS token: of the last block its CLS row alone is computed.

One query per head is left, so that keys and values need not be formed for every token: q.(W_k x) = (W_k^T q).x and
sum a W_v x = W_v (sum a x). Norms on keys and rotary positions stand between W_k and the product, and then keys are
formed; values never need to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holotype.models.whole_tail import Block, WholeTail

ALIGNED = 8
"""Numbers of 16 bits in the 16 bytes that a GPU reads at once."""


class RowTail(WholeTail):
    """Earlier trained blocks in full, of the last one only the CLS row."""

    def attend(self, block: Block, tokens: Tensor) -> Tensor:
        """The CLS row of the block's attention branch before the output projection. (B, N, D) -> (B, D)."""
        raise NotImplementedError  # abstract: the three forms below

    def from_tokens(self, tokens: Tensor) -> Tensor:
        *whole, last = self.trained()
        x = tokens
        for i, block in enumerate(whole):
            x = self.run(i, block, x)
        return self.after_attention(last, x[:, 0], self.attend(last, x))

    def after_attention(self, block: Block, row: Tensor, attended: Tensor) -> Tensor:
        """The rest of the last block on its CLS row. row, attended: (B, D) -> features (B, D)."""
        row = row + _scaled(block, 1, block.attn.proj(block.attn.norm(attended)))
        row = row + _scaled(block, 2, block.mlp(block.norm2(row)))
        return self.fc_norm(self.norm(row))


class StandardisedTail(RowTail):
    """Splits the learnt part of the first norm off, so that a cache can keep standardised tokens."""

    def standardise(self, tokens: Tensor) -> Tensor:
        """The CLS row as it is, then all tokens standardised; with one trained block (B, N, D) -> (B, N + 1, D)."""
        if not self._standardises():
            return tokens
        return torch.cat([tokens[:, :1], _standardised(self.trained()[0].norm1, tokens)[0]], dim=1)

    def from_standardised(self, x: Tensor) -> Tensor:
        if not self._standardises():
            return super().from_standardised(x)
        block = self.trained()[0]
        attended = self.attend_standardised(block, x[:, 1:], *_gain_and_shift(block.norm1, x))
        return self.after_attention(block, x[:, 0], attended)

    def _standardises(self) -> bool:
        """Whether the learnt part of the first norm can be split off: only where no block runs before it."""
        blocks = self.trained()
        return len(blocks) == 1 and isinstance(blocks[0].norm1, nn.LayerNorm)

    def attend(self, block: Block, tokens: Tensor) -> Tensor:
        return self.attend_standardised(block, *_standardised(block.norm1, tokens))

    def attend_standardised(self, block: Block, x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
        """The same of x (B, N, D) with norm1(tokens) = x * gain + shift."""
        raise NotImplementedError  # abstract: the two forms below


class AbsorbedTail(StandardisedTail):
    """Attention on the normalised tokens: W_k goes into the query, W_v onto the pooled row."""

    def attend_standardised(self, block: Block, x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
        attn = block.attn
        # The norm's gain and shift go into the query and the pooled row too: no gradient then passes
        # through the (B, N, D) tokens unless an earlier block asks for it.
        (w_q, w_k, w_v), (b_q, _, b_v) = _projections(attn)  # the key bias cancels in the softmax
        q = torch.einsum("bc,hdc->bhd", x[:, 0] * gain + shift, w_q) + b_q
        query = torch.einsum("bhd,hdc->bhc", q * attn.scale, w_k) * gain
        pooled = _pool(query, x) * gain + shift  # (B, H, D); in the softmax the shift cancels: it is constant
        return (torch.einsum("bhc,hdc->bhd", pooled, w_v) + b_v).flatten(1)


class RotaryTail(StandardisedTail):
    """Keys of all tokens, values pooled. Rotary positions are of the patches alone, so that CLS asks unrotated.

    Instead of every key, the query is rotated back to the place of every key: q.(R_j k_j) = (R_j^T q).k_j.
    """

    def attend_standardised(self, block: Block, x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
        attn = block.attn
        (w_q, w_k, w_v), (b_q, b_k, b_v) = _projections(attn)
        q = attn.q_norm(torch.einsum("bc,hdc->bhd", x[:, 0] * gain + shift, w_q) + b_q) * attn.scale
        weight, bias = (w_k * gain).flatten(0, 1), torch.einsum("hdc,c->hd", w_k, shift) + b_k
        keys = F.linear(x, weight, bias.flatten()).unflatten(-1, b_k.shape)
        keys = attn.k_norm(keys.transpose(1, 2))  # (B, H, N, d)
        share = (self.turned_back(attn, q) * keys).sum(-1).softmax(dim=-1)  # (B, H, N)
        pooled = share.to(x.dtype) @ x * gain + shift  # (B, H, D)
        return (torch.einsum("bhc,hdc->bhd", pooled, w_v) + b_v).flatten(1)

    def turned_back(self, attn: Any, q: Tensor) -> Tensor:
        """R_j^T q for every token j; prefix tokens have no position. (B, H, d) -> (B, H, N, d)."""
        if self.rope is None:
            return q.unsqueeze(2)
        sin, cos = (self.rope[-1] if self.rope_per_block else self.rope).chunk(2, dim=-1)
        prefix = (0, 0, attn.num_prefix_tokens, 0)
        sin, cos = F.pad(sin, prefix), F.pad(cos, prefix, value=1.0)  # (N, d), or (H, N, d)
        return q.unsqueeze(2) * cos - _quarter_turn(attn, q).unsqueeze(2) * sin


class KVTail(RowTail):
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


def _projections(attn: Any) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Weights (H, d, D) and biases (H, d) of queries, keys and values."""
    by_head = (attn.num_heads, attn.head_dim)
    if attn.qkv is None:
        each = (attn.q_proj, attn.k_proj, attn.v_proj)
        return [one.weight.unflatten(0, by_head) for one in each], [
            _bias(one).unflatten(0, by_head) for one in each
        ]
    if getattr(attn, "q_bias", None) is None:
        bias = _bias(attn.qkv)
    else:
        bias = torch.cat([attn.q_bias, attn.k_bias, attn.v_bias])
    weight = attn.qkv.weight.unflatten(0, (3, *by_head))
    return tuple(weight), tuple(bias.unflatten(0, (3, *by_head)))


def _scaled(block: Block, branch: int, x: Tensor) -> Tensor:
    """A branch of a block with its layer scale, which timm's two kinds of block keep in two ways."""
    if hasattr(block, "ls1"):
        return (block.ls1 if branch == 1 else block.ls2)(x)
    gain = block.gamma_1 if branch == 1 else block.gamma_2
    return x if gain is None else gain * x


def _quarter_turn(attn: Any, x: Tensor) -> Tensor:
    """Every pair (a, b) that turns together as (-b, a): halves of a head, or neighbours in it."""
    if getattr(attn, "rotate_half", False):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([-b, a], dim=-1)
    return torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)


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
