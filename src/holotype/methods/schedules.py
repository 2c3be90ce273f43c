"""Schedules: learning rates, warm-ups and ramps as plain functions."""

from __future__ import annotations

import math

from holotype.methods.base import LRSchedule, Progress

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


def sigmoid_ramp(epoch: float, length: float) -> float:
    """exp(-5 (1 - t / length)^2), t = epoch, but at most `length`: 0.0067 at first, 1 from there on; 1 for length 0."""
    left = 1 - min(epoch, length) / length if length > 0 else 0.0
    return math.exp(-5 * left**2)


def constant(at: Progress) -> float:
    """The whole rate, always."""
    return 1.0


def cosine(floor: float = FINAL_LR_SHARE, warmup: float = 0.0) -> LRSchedule:
    """From 1 towards `floor` along a cosine, step by step.

    warmup: epochs in which the rate rises linearly to that; a short stage warms up for half of it at most.
    """

    def pace(at: Progress) -> float:
        share = floor + (1 - floor) * (1 + math.cos(math.pi * at.progress)) / 2
        rising = min(warmup, at.epochs / 2)
        done = at.epoch + (at.step + 1) / at.steps
        return share * min(1.0, done / rising) if rising > 0 else share

    return pace


def drops(*when: float, by: float = 0.1) -> LRSchedule:
    """1 at first, and `by` times as much from each of `when` on, given as shares of the stage (0.5: half-way)."""

    def pace(at: Progress) -> float:
        return float(by ** sum(at.progress >= share for share in when))

    return pace
