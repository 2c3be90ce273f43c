"""The last blocks of a network in full, its norm and its pool: the tail that fits every plain vision transformer."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from holotype.errors import InputError

Model = Any
"""A timm VisionTransformer or Eva with num_classes=0; timm has no types that a checker could use."""
Block = Any
"""One of its blocks."""


class WholeTail(nn.Module):
    """The last blocks in full, then the model's norm and pool."""

    rope: Tensor | None

    def __init__(self, model: Model, first: int) -> None:
        """model: a timm VisionTransformer or Eva; first: index of the first trained block."""
        super().__init__()
        from timm.layers import global_pool_nlc

        blocks = dict(enumerate(model.blocks))
        self.blocks = nn.ModuleDict({str(i): block for i, block in blocks.items() if i >= first})
        self.width = int(model.embed_dim)
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
        x = tokens
        for i, block in enumerate(self.trained()):
            x = self.run(i, block, x)
        return self.fc_norm(self.pooled(self.norm(x)))

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
