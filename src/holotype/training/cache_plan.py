"""Which views of a token cache fit where: fewer views before a lower level, a lower level before none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from holotype.errors import InputError
from holotype.methods.base import Views
from holotype.models.token_cache import CacheViews, TokenShape
from holotype.utils.memory import PLACE_NAMES, Budget, Level, format_bytes

LEAST = CacheViews(4, 2)
"""Views shrink to these before the cache moves from the device to the host or from there to a file."""


@dataclass(frozen=True)
class Plan:
    """Where a cache goes, and how many views it can hold there."""

    views: CacheViews
    level: Level
    reason: str
    """Why it is not what was asked for; "" if it is."""


def fit_to_needs(wanted: CacheViews, needs: Views, fixed: bool) -> CacheViews:
    """Refuse fewer views than a step draws; leave out strong ones where none is drawn."""
    if wanted.weak < needs.weak or wanted.strong < needs.strong:
        raise InputError(
            f"cache_views {wanted} is too few: a step draws {needs.weak} weak and {needs.strong} strong views of each "
            f"image; use at least {max(needs.weak, 2)}+{needs.strong}."
        )
    return wanted if needs.strong or fixed else CacheViews(wanted.weak, 0)


def plan_cache(
    wanted: CacheViews,
    needs: Views,
    shape: TokenShape,
    budget: Budget,
    device: torch.device,
    fixed: bool = False,
    *,
    whole: int | None = None,
) -> Plan:
    """The highest level on which at least LEAST views fit, with as many views as fit there.

    shape: of the images that a process holds in memory. whole: those of all processes, which a file holds; by default
    the same.
    """
    of_all = replace(shape, images=shape.images if whole is None else whole)
    room: dict[Level, int] = {"device": budget.device, "host": budget.host, "disk": budget.disk}
    if device.type == "cpu":
        room.pop("device")
    highest = next(iter(room))
    for level, limit in room.items():
        held = of_all if level == "disk" else shape
        views = next((v for v in shrinking(wanted, needs, fixed) if held.nbytes(v) <= limit), None)
        if views is None:
            continue
        if (views, level) == (wanted, highest):
            return Plan(views, level, "")
        short = format_bytes(held.nbytes(wanted)) + f" for {wanted} views do not fit "
        short += " or ".join(
            f"the {format_bytes(n)} of {PLACE_NAMES[of]}" for of, n in _above(room, level, views != wanted)
        )
        return Plan(views, level, short)
    raise InputError(
        f"A token cache of {of_all.images:,} images with {wanted} views takes {format_bytes(of_all.nbytes(wanted))}, but "
        f"there are only {format_bytes(budget.host)} of memory and {format_bytes(budget.disk)} of disk for it: ask for fewer views "
        "with --cache-views, allow more with --memory.disk_gb, or use --cache-views off."
    )


def _above(room: dict[Level, int], level: Level, inclusive: bool) -> list[tuple[Level, int]]:
    """The levels that were too small: those before `level`, and itself where views had to shrink on it."""
    names = list(room)
    last = names.index(level) + inclusive
    return [(name, room[name]) for name in names[:last]]


def shrinking(wanted: CacheViews, needs: Views, fixed: bool) -> Iterator[CacheViews]:
    """`wanted`, then fewer and fewer weak views with strong ones in proportion, down to LEAST."""
    yield wanted
    if fixed:
        return
    least_strong = min(wanted.strong, max(LEAST.strong, needs.strong))
    for weak in range(wanted.weak - 1, max(LEAST.weak, needs.weak) - 1, -1):
        strong = max(least_strong, round(wanted.strong * weak / wanted.weak))
        yield CacheViews(weak, strong)
