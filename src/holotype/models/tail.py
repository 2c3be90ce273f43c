"""The trained end of a backbone: its last blocks, norm and pool; the CLS row alone where that is exact.

One query per head is left, so that keys and values need not be formed for every token: q.(W_k x) = (W_k^T q).x and
sum a W_v x = W_v (sum a x). Norms on keys and rotary positions stand between W_k and the product, and then keys are
formed; values never need to be.

Four tails behind one call, `tail(trunk(images))` -> features (B, D); trunk + tail = the model:

- AbsorbedTail: plain attention and the CLS token as feature. Attention runs on the normalised tokens themselves,
  and keys and values are never formed.
- RotaryTail: the same with rotary positions or norms on queries and keys: keys of all tokens, values never formed.
- PoolTail: an attention pool (SigLIP) behind whole blocks; the pool's keys and values are never formed.
- WholeTail: everything else (the mean of the patches, other kinds of block).

Outputs and gradients equal those of the whole blocks. The modules inside are timm's own, under their names
(`blocks.11.attn.qkv.weight`, `norm.weight`, ...). Tokens come in the parameters' type, or under autocast.

A token cache keeps `tail.prepare(tokens)`, all of the tail that does not learn, which are the inputs of a stage on
tokens. The same call takes them: tail(prepare(tokens)) = tail(tokens). They are flat, one row (M D) an image, so that
their shape tells them from tokens; any other shape is refused. Vectors in the place of images have a VectorTail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
MAX_VECTOR_WIDTH = 1024
"""Of the hidden layer of VectorTail, which is as wide as the vectors up to here."""


def split_backbone(model: Model, train_blocks: int, patches: bool = False) -> tuple[nn.Module, WholeTail]:
    """Take a model apart: trunk(images) -> tokens, tail(tokens) -> features, tail(trunk(x)) = model(x).

    patches: whether `tail.tokens` is to give those of the patches, which takes the blocks in full.

    The trunk is the model itself, shortened, in evaluation mode and frozen; the tail owns the last
    `train_blocks` blocks, which alone require gradients, and the frozen norm and pool.
    """
    depth = len(model.blocks)
    check_blocks(train_blocks, depth, type(model).__name__)
    model.requires_grad_(False).eval()
    first = depth - train_blocks
    tail = WholeTail(model, first) if patches else build_tail(model, first)
    tail.blocks.requires_grad_(True)
    model.blocks = model.blocks[:first]
    model.norm, model.fc_norm, model.attn_pool = nn.Identity(), nn.Identity(), None
    model.reset_classifier(0, "")  # timm's way to say: return the tokens
    return model, tail


def check_blocks(train_blocks: int, depth: int, arch: str) -> None:
    if not 1 <= train_blocks <= depth:
        raise InputError(f"train_blocks is {train_blocks}, but {arch} has {depth} blocks: use 1 to {depth}.")


def build_tail(model: Model, first: int) -> WholeTail:
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
    rotated = getattr(model, "rope", None) is not None
    return RotaryTail if normed or rotated or attn.qkv is None else AbsorbedTail


def _is_plain(block: Block) -> bool:
    """Whether nothing in the block is dropped or gated, and every query has keys of its own."""
    attn = block.attn
    dropped = attn.attn_drop.p or attn.proj_drop.p or not isinstance(block.drop_path1, nn.Identity)
    return not dropped and getattr(attn, "gate", None) is None and getattr(attn, "num_kv_groups", 1) == 1


def absorbs_pool(model: Model) -> bool:
    """Whether the model's attention pool is one that PoolTail can compute."""
    from timm.layers import AttentionPoolLatent

    pool = model.attn_pool
    if type(pool) is not AttentionPoolLatent or pool.latent_len != 1 or pool.pos_embed is not None:
        return False
    plain = isinstance(pool.q_norm, nn.Identity) and isinstance(pool.k_norm, nn.Identity)
    return plain and pool.pool == "token" and pool.proj_drop.p == 0


def place_trunk(trunk: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Move a trunk, whose rotary positions keep float32 where the rest has 16 bits.

    Angles that are rounded to 8 bits of mantissa put patches in the wrong places; timm rotates in the wider type.
    """
    rope = getattr(trunk, "rope", None)
    if rope is None:
        return trunk.to(device, dtype)
    trunk.rope = None  # type: ignore[assignment]
    trunk.to(device, dtype)
    trunk.rope = rope.to(device, torch.promote_types(dtype, torch.float32))
    return trunk


def rotary_positions(model: Model) -> Tensor | None:
    """The rotary positions at the model's image size, None where it has none; in mixed mode one per block."""
    if getattr(model, "rope", None) is None:
        return None
    like = next(model.parameters())
    blank = torch.zeros(1, 3, *model.patch_embed.img_size, device=like.device, dtype=like.dtype)
    with torch.no_grad():
        _, rope = model._pos_embed(model.patch_embed(blank))
    return rope


class WholeTail(nn.Module):
    """The last blocks in full, then the model's norm and pool."""

    rope: Tensor | None

    def __init__(self, model: Model, first: int) -> None:
        """model: a timm VisionTransformer or Eva; first: index of the first trained block."""
        super().__init__()
        from timm.layers import global_pool_nlc

        blocks = dict(enumerate(model.blocks))
        self.blocks = nn.ModuleDict({str(i): block for i, block in blocks.items() if i >= first})
        self.width, self.n_prefix = int(model.embed_dim), int(model.num_prefix_tokens)
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
        own = rope[first:] if self.rope_per_block and rope is not None else rope
        self.register_buffer("rope", own, persistent=False)

    def trained(self) -> list[Block]:
        return list(self.blocks.values())

    def run(self, index: int, block: Block, x: Tensor) -> Tensor:
        """One whole block; index counts from the tail's first. (B, N, D) -> (B, N, D)."""
        if self.rope is None:
            return block(x)
        return block(x, rope=self.rope[index] if self.rope_per_block else self.rope)

    def prepare(self, tokens: Tensor) -> Tensor:
        """All that does not learn: trunk(images) (B, N, D) -> (B, M D), flat so that it is never taken for tokens."""
        if not self._is_tokens(tokens):
            raise self._refusal("tail.prepare", tokens)
        return self.standardise(tokens).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, D) of the inputs of a stage on tokens (B, M D), or of trunk(images) (B, N, D)."""
        if self._is_tokens(x):
            return self.from_tokens(x)
        if x.ndim == 2 and x.shape[1] > self.width and x.shape[1] % self.width == 0:
            return self.from_standardised(x.unflatten(1, (-1, self.width)))
        raise self._refusal("tail", x)

    def _is_tokens(self, x: Tensor) -> bool:
        return x.ndim == 3 and x.shape[2] == self.width

    def _refusal(self, function: str, x: Tensor) -> InputError:
        flat = "" if function == "tail.prepare" else f", or stage inputs (B, M * {self.width})"
        return InputError(
            f"{function} takes tokens (B, N, {self.width}) as trunk(images) returns them{flat}, not "
            f"{tuple(x.shape)}; flatten the views of a stage with inputs.flatten(0, 1), and send images through the "
            "trunk first."
        )

    def standardise(self, tokens: Tensor) -> Tensor:
        """What `prepare` keeps: (B, N, D) -> (B, M, D)."""
        return tokens

    def from_standardised(self, x: Tensor) -> Tensor:
        """The features (B, D) of what `standardise` returned."""
        return self.from_tokens(x)

    def from_tokens(self, tokens: Tensor) -> Tensor:
        """The features (B, D) of the trunk's output."""
        return self.pool_tokens(self.through_blocks(tokens))

    def through_blocks(self, x: Tensor) -> Tensor:
        """(B, N, D) tokens after the last norm."""
        for i, block in enumerate(self.trained()):
            x = self.run(i, block, x)
        normed: Tensor = self.norm(x)
        return normed

    def tokens(self, x: Tensor) -> Tensor:
        """(B, N, D) tokens after the last norm, of the inputs of a stage on tokens or of trunk(images): `n_prefix`
        tokens such as CLS, then the patches. `pool_tokens` makes the features of them."""
        if isinstance(self, RowTail):
            raise InputError(
                "This tail computes the CLS row alone; a method that reads patches sets patches = True."
            )
        return self.through_blocks(x if self._is_tokens(x) else x.unflatten(1, (-1, self.width)))

    def pool_tokens(self, x: Tensor) -> Tensor:
        """The features (B, D) of what `tokens` returned."""
        return self.fc_norm(self.pooled(x))

    def pooled(self, x: Tensor) -> Tensor:
        """The feature of the tokens after the last norm. (B, N, D) -> (B, D)."""
        return self.pool(x) if self.attn_pool is None else self.attn_pool(x[:, self.pool_from :])


class PoolTail(WholeTail):
    """The same with an attention pool (SigLIP), of which keys and values are never formed.

    Its query is a parameter: W_k goes into it, and W_v onto the pooled row.
    """

    def pooled(self, x: Tensor) -> Tensor:
        x = x[:, self.pool_from :]
        pool: Any = self.attn_pool
        by_head = (pool.num_heads, pool.head_dim)
        w_k, w_v = pool.kv.weight.unflatten(0, (2, *by_head))  # each (H, d, D)
        q = pool.q(pool.latent)[0, 0].unflatten(0, by_head) * pool.scale
        query = torch.einsum("hd,hdc->hc", q, w_k)  # the key bias cancels in the softmax
        pooled = (x @ query.mT).softmax(dim=1).mT @ x  # (B, H, D)
        values = torch.einsum("bhc,hdc->bhd", pooled, w_v)
        if pool.kv.bias is not None:
            values = values + pool.kv.bias.unflatten(0, (2, *by_head))[1]
        out = pool.proj(values.flatten(1))
        return out if pool.mlp is None else out + pool.mlp(pool.norm(out))


class RowTail(WholeTail):
    """Earlier trained blocks in full, of the last one only the CLS row.

    The learnt part of the last block's first norm is split off, so that a cache can keep standardised tokens.
    """

    def standardise(self, tokens: Tensor) -> Tensor:
        """The CLS row as it is, then all tokens standardised; with one trained block (B, N, D) -> (B, N + 1, D)."""
        if not self._standardises():
            return tokens
        return torch.cat([tokens[:, :1], _standardised(self.trained()[0].norm1, tokens)[0]], dim=1)

    def from_standardised(self, x: Tensor) -> Tensor:
        if not self._standardises():
            return super().from_standardised(x)
        block = self.trained()[0]
        attended = self.attend(block, x[:, 1:], *_scale_and_shift(block.norm1, x))
        return self.after_attention(block, x[:, 0], attended)

    def _standardises(self) -> bool:
        """Whether the learnt part of the first norm can be split off: only where no block runs before it."""
        blocks = self.trained()
        return len(blocks) == 1 and isinstance(blocks[0].norm1, nn.LayerNorm)

    def from_tokens(self, tokens: Tensor) -> Tensor:
        *whole, last = self.trained()
        x = tokens
        for i, block in enumerate(whole):
            x = self.run(i, block, x)
        return self.after_attention(last, x[:, 0], self.attend(last, *_standardised(last.norm1, x)))

    def attend(self, block: Block, x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
        """The CLS row of the block's attention branch before the output projection, (B, N, D) -> (B, D).

        norm1(tokens) = x * gain + shift.
        """
        raise NotImplementedError  # abstract: the two forms below

    def after_attention(self, block: Block, row: Tensor, attended: Tensor) -> Tensor:
        """The rest of the last block on its CLS row. row, attended: (B, D) -> features (B, D)."""
        row = row + _scaled(block, 1, block.attn.proj(block.attn.norm(attended)))
        row = row + _scaled(block, 2, block.mlp(block.norm2(row)))
        return self.fc_norm(self.norm(row))


class AbsorbedTail(RowTail):
    """Attention on the normalised tokens: W_k goes into the query, W_v onto the pooled row."""

    def attend(self, block: Block, x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
        attn = block.attn
        # The norm's gain and shift go into the query and the pooled row too: no gradient then passes
        # through the (B, N, D) tokens unless an earlier block asks for it.
        (w_q, w_k, w_v), (b_q, _, b_v) = _projections(attn)  # the key bias cancels in the softmax
        q = torch.einsum("bc,hdc->bhd", x[:, 0] * gain + shift, w_q) + b_q
        query = torch.einsum("bhd,hdc->bhc", q * attn.scale, w_k) * gain
        pooled = _pool(query, x) * gain + shift  # (B, H, D); in the softmax the shift cancels: it is constant
        return (torch.einsum("bhc,hdc->bhd", pooled, w_v) + b_v).flatten(1)


class RotaryTail(RowTail):
    """Keys of all tokens, values pooled. Rotary positions are of the patches alone, so that CLS asks unrotated.

    Instead of every key, the query is rotated back to the place of every key: q.(R_j k_j) = (R_j^T q).k_j.
    """

    def attend(self, block: Block, x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
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


def _projections(attn: Any) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Weights (H, d, D) and biases (H, d) of queries, keys and values."""
    by_head = (attn.num_heads, attn.head_dim)
    if attn.qkv is None:
        each = (attn.q_proj, attn.k_proj, attn.v_proj)
        weights, biases = [one.weight for one in each], [_bias(one) for one in each]
        return [w.unflatten(0, by_head) for w in weights], [b.unflatten(0, by_head) for b in biases]
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
        return F.layer_norm(x, norm.normalized_shape, eps=norm.eps), *_scale_and_shift(norm, x)


def _scale_and_shift(norm: nn.LayerNorm, like: Tensor) -> tuple[Tensor, Tensor]:
    """The learnt part of a layer norm; 1 and 0 in the type of `like` where it has none."""
    if norm.weight is None:
        one = like.new_ones(norm.normalized_shape)
        return one, torch.zeros_like(one)
    return norm.weight, torch.zeros_like(norm.weight) if norm.bias is None else norm.bias


def _pool(query: Tensor, x: Tensor) -> Tensor:
    """softmax(query x^T) x, the tokens' mean as each head weighs them. query: (B, H, D), x: (B, N, D) -> (B, H, D)."""
    if not x.is_cuda:
        return (query @ x.mT).softmax(dim=-1) @ x
    heads = query.shape[1]
    pooled: Tensor = _AlignedPool.apply(F.pad(query, (0, 0, 0, -heads % ALIGNED)).to(x.dtype), x)
    return pooled[:, :heads]


class _AlignedPool(torch.autograd.Function):
    """The same with the heads last in every product.

    Rows of N = 197 weights would lie on odd addresses, for which a GPU has only slow products (3 times slower);
    rows of H heads, filled up to ALIGNED, do not. The backward pass is written out to keep that order in it.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            weight = (x @ query.mT).softmax(dim=1)  # (B, N, H)
            ctx.save_for_backward(weight, x, query)
            return weight.mT @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        weight, x, query = ctx.saved_tensors
        with torch.autocast(x.device.type, enabled=False):
            d_weight = x @ grad.mT  # (B, N, H)
            d_score = torch._softmax_backward_data(d_weight, weight, 1, weight.dtype)
            # only a block before this one asks for the gradient of the tokens
            d_x = torch.baddbmm(weight @ grad, d_score, query) if ctx.needs_input_grad[1] else None
            return d_score.mT @ x, d_x


def _bias(linear: nn.Linear) -> Tensor:
    return linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias


class VectorTail(nn.Module):
    """Vectors in the place of images: nothing looks, and a small head in front of the method learns.

        f(x) = u + W_2 gelu(W_1 u),    u = sqrt(D) x / |x|,

    in which W_2 begins at zero, so that training begins with the vectors as they are. (B, D) -> (B, D).
    """

    blocks = ()
    """Of a network; here there are none."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.hidden = nn.Linear(dim, min(dim, MAX_VECTOR_WIDTH))
        self.out = nn.Linear(min(dim, MAX_VECTOR_WIDTH), dim)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def prepare(self, vectors: Tensor) -> Tensor:
        """Vectors are ready as they are."""
        return vectors

    def forward(self, x: Tensor) -> Tensor:
        u = math.sqrt(self.dim) * F.normalize(x.float(), dim=-1)
        return u + self.out(F.gelu(self.hidden(u)))
