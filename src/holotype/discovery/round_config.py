"""Settings of a round, stored in its folder."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holotype.config.schema import NO, DiscoverConfig
from holotype.data.table import Table
from holotype.discovery.training_plan import resolve_settings
from holotype.utils.device import pick_device
from holotype.utils.serialization import FileSchema, to_dict

ROUND_FILE = "round.json"
ROUND_SCHEMA = FileSchema(2, "restore it from a copy, or run holotype discover with another --out")


@dataclass(frozen=True)
class RoundConfig:
    """Settings of a round."""

    settings: dict[str, Any]
    """As a person gave them; None where the device decides."""
    taken: dict[str, Any]
    """The same with what the device decides."""
    device: str = ""
    title: str = ""
    """What the collection is called."""
    groups: str = ""
    """Digest of the bursts that people have told (`told_groups`), "" = none."""

    @classmethod
    def of(cls, config: DiscoverConfig, title: str, groups: str = "") -> RoundConfig:
        taken = resolve_settings(config)
        settings = {name: getattr(config, name) for name in taken}
        return cls(settings, taken, pick_device(config.device), title, "" if config.bursts == NO else groups)

    def others(self, before: RoundConfig) -> list[str]:
        """What was asked for otherwise than before: --k 12 (was 10). Where only the device has changed: nothing."""
        settings = [
            f"{_flag_name(name, value)} (was {_shown_value(before.settings.get(name))})"
            for name, value in self.settings.items()
            if value != before.settings.get(name) and self.taken[name] != before.taken.get(name)
        ]
        if self.taken["bursts"] == NO or before.taken.get("bursts") == NO:
            return settings  # nobody has asked for groups, or that is said already
        return [*settings, *(["other groups"] if self.groups != before.groups else [])]

    def save(self, folder: Path) -> None:
        ROUND_SCHEMA.write(folder / ROUND_FILE, to_dict(self))


def stated_groups(table: Table, digests: Sequence[str]) -> str:
    """A digest of which images people have put into groups, "" where there are none; whatever the groups and the files
    are called. digests: (N,) of the contents of the images."""
    if table.group is None:
        return ""
    frames: dict[str, list[str]] = defaultdict(list)
    for name, digest in zip(table.group, digests, strict=True):
        frames[name].append(digest)
    told = sorted(sorted(group) for name, group in frames.items() if name and len(group) > 1)
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16] if told else ""


def read_round_config(folder: Path) -> RoundConfig | None:
    """Of the round in `folder`; None where it was stopped before that was written."""
    file = folder / ROUND_FILE
    return ROUND_SCHEMA.make(file, RoundConfig) if file.is_file() else None


def _flag_name(name: str, value: Any) -> str:
    return f"--{name.replace('_', '-')} {_shown_value(value)}"


def _shown_value(value: Any) -> str:
    return "as usual" if value is None else f"{value}"
