"""What was asked of a round: `begun.json` in its folder. Settings belong to a round: another one may have others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holotype.discovery.config import DiscoverConfig
from holotype.discovery.plan import resolved
from holotype.machine.device import pick_device
from holotype.machine.plain import as_plain
from holotype.machine.sealed import Form

FILE = "begun.json"
ADDED = {"bursts": "auto"}
"""What rounds of an older version were not asked, and what they were as if they had been."""
BEGUN = Form(1, "restore it from a copy, or run holotype discover with another --out", older=(None,))


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

    @classmethod
    def of(cls, config: DiscoverConfig, title: str) -> Asked:
        taken = resolved(config)
        settings = {name: getattr(config, name) for name in taken}
        return cls(settings, taken, pick_device(config.device), title)

    def others(self, before: Asked) -> list[str]:
        """What was asked for otherwise than before: --k 12 (was 10). Where only the device has changed: nothing."""
        return [
            f"{_flag(name, value)} (was {_shown(before.settings.get(name, ADDED.get(name)))})"
            for name, value in self.settings.items()
            if value != before.settings.get(name, ADDED.get(name))
            and self.taken[name] != before.taken.get(name, ADDED.get(name))
        ]

    def save(self, folder: Path) -> None:
        BEGUN.write(folder / FILE, as_plain(self))


def read_asked(folder: Path) -> Asked | None:
    """Of the round in `folder`; None where an older version has written it."""
    file = folder / FILE
    return BEGUN.make(file, Asked) if file.is_file() else None


def _flag(name: str, value: Any) -> str:
    flag = f"--{name.replace('_', '-')}"
    if value is None:
        return f"{flag} as usual"
    return f"{flag} {_shown(value)}" if not isinstance(value, bool) else flag if value else f"no {flag}"


def _shown(value: Any) -> str:
    return (
        "as usual"
        if value is None
        else {True: "on", False: "off"}[value]
        if isinstance(value, bool)
        else f"{value}"
    )
