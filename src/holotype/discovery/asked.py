"""What was asked of a round: `begun.json` in its folder. Settings belong to a round: another one may have others."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holotype.data.table import Table
from holotype.discovery.config import NO, DiscoverConfig
from holotype.discovery.plan import resolved
from holotype.machine.device import pick_device
from holotype.machine.plain import as_plain
from holotype.machine.sealed import Form

FILE = "begun.json"
BEGUN = Form(2, "restore it from a copy, or run holotype discover with another --out", older=(1, None))
USUAL_METHOD = "rpc"
"""What was written before format 2 where nobody had asked for a method."""


@dataclass(frozen=True)
class Asked:
    """Settings of a round."""

    settings: dict[str, Any]
    """As a person gave them; None where the device decides."""
    taken: dict[str, Any]
    """The same with what the device decides."""
    device: str = ""
    title: str = ""
    """What the collection is called."""
    groups: str | None = None
    """Digest of the bursts that people have told (`told_groups`), "" = none; None where nobody knows."""

    @classmethod
    def of(cls, config: DiscoverConfig, title: str, groups: str = "") -> Asked:
        taken = resolved(config)
        settings = {name: getattr(config, name) for name in taken}
        return cls(settings, taken, pick_device(config.device), title, "" if config.bursts == NO else groups)

    def others(self, before: Asked) -> list[str]:
        """What was asked for otherwise than before: --k 12 (was 10). Where only the device has changed: nothing."""
        settings = [
            f"{_flag(name, value)} (was {_shown(before.settings.get(name))})"
            for name, value in self.settings.items()
            if value != before.settings.get(name) and self.taken[name] != before.taken.get(name)
        ]
        if self.taken["bursts"] == NO or before.taken.get("bursts") == NO:
            return settings  # nobody has asked for groups, or that is said already
        return [*settings, *(["other groups"] if self.groups != before.known_groups(self) else [])]

    def is_that_of(self, before: Asked) -> bool:
        """Is it the very same?"""
        return self == replace(before, groups=before.known_groups(self))

    def known_groups(self, other: Asked) -> str | None:
        """Where nobody knows, those of another one."""
        return other.groups if self.groups is None else self.groups

    def save(self, folder: Path) -> None:
        BEGUN.write(folder / FILE, as_plain(self))


def told_groups(table: Table, digests: Sequence[str]) -> str:
    """A digest of which images people have put into groups, "" where there are none; whatever the groups and the files
    are called. digests: (N,) of the contents of the images."""
    if table.group is None:
        return ""
    frames: dict[str, list[str]] = defaultdict(list)
    for name, digest in zip(table.group, digests, strict=True):
        frames[name].append(digest)
    told = sorted(sorted(group) for name, group in frames.items() if name and len(group) > 1)
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16] if told else ""


def read_asked(folder: Path) -> Asked | None:
    """Of the round in `folder`; None where an older version has written it."""
    file = folder / FILE
    if not file.is_file():
        return None
    version, asked = BEGUN.make_of_version(file, Asked, every=False)
    settings = of_today(asked.settings)
    if version != BEGUN.format:
        settings = as_usual(settings)
    return replace(asked, settings=settings, taken=of_today(asked.taken))


def of_today(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as an older version wrote them, in the words of today: --long-tail was there or not, and nobody asked
    for bursts or a number of trainings."""
    told = {"bursts": "auto", "seeds": "auto"} | settings
    tail = told.get("long_tail")
    return told | {"long_tail": "yes" if tail else "auto"} if isinstance(tail, bool) else told


def as_usual(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of before format 2, with a method only if it was not the usual one: a newer default alone is no reason
    for another round."""
    return settings | ({"method": None} if settings.get("method") == USUAL_METHOD else {})


def _flag(name: str, value: Any) -> str:
    return f"--{name.replace('_', '-')} {_shown(value)}"


def _shown(value: Any) -> str:
    return "as usual" if value is None else f"{value}"
