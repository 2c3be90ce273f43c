"""Schedules as plain functions of the epoch."""

from __future__ import annotations

import math

FINAL_LR_SHARE = 1e-3


def cosine_lr(lr: float, epoch: int, epochs: int, warmup: float = 0.0) -> float:
    """The learning rate in force during `epoch`: cosine from `lr` towards lr * 1e-3, once an epoch.

    warmup: share of the epochs, w of them; in epoch e below w the rate is (e + 1) / (w + 1) of that.
    """
    floor, rising = lr * FINAL_LR_SHARE, round(warmup * epochs)
    return min(1.0, (epoch + 1) / (rising + 1)) * (
        floor + (lr - floor) * (1 + math.cos(math.pi * epoch / epochs)) / 2
    )


def linear_warmup(start: float, end: float, warmup: int, epoch: int, epochs: int) -> float:
    """`warmup` values spaced evenly from `start` to `end`, then `end`.

    A run shorter than the warm-up shortens the warm-up to its own length.
    """
    warmup = min(warmup, epochs)
    if epoch >= warmup:
        return end
    return start + (end - start) * epoch / max(warmup - 1, 1)


def ramp(epoch: int, length: int, epochs: int) -> float:
    """0 at epoch 0, 1 from epoch `length` on, linear in between; 1 everywhere for length 0.

    A short run spends at most half of its epochs on it.
    """
    length = min(length, epochs // 2)
    return min(1.0, epoch / length) if length > 0 else 1.0
