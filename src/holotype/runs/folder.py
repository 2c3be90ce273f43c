"""The run folder: what every run leaves behind, and the check that a folder belongs to the run at hand.

identity.json       all that decides the weights
config.yaml         the resolved settings; `holotype train --config` repeats the run with it alone
provenance.json     versions, hardware, precision, backbone and table digests
cache.json          the views of the token cache that the run trains on, where it does
metrics.jsonl       one line per epoch and per scoring
state.*             the resume state (train/state.py)
model.json, model.safetensors   tail and method after the last epoch, and the centres of the categories (trained.py)
assignments.*       every image with its category (parquet and csv; categories/found.py)
discovery.json      the categories, their relations, the facts (categories/found.py)
scores.json         All, Old, New and the rest, where the truth is known; marks the run as finished
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from holotype.errors import InputError
from holotype.machine.files import write_text

LATER = {
    "cache_views": "off",
    "method.memax_target": "uniform",
    "method.new.sharpen": 1.0,
    "method.new.space": "signature",
    "method.strong_for": "all",
}
"""What identities did not hold from the start, as dotted keys, with the value that held then."""
GONE: dict[str, dict[str, Any]] = {
    "simgcd": {"method.temps": "simgcd_code"},
    "debgcd": {"method.temps": "simgcd_code"},
    "rpc": {
        "method.temps": "simgcd_code",
        "method.rho": "ova_ema",
        "method.share": "batch",
        "method.ova.mode": "joint",
        "method.ova.score": "max",
        "method.ova.pretrain_epochs": 20,
        "method.fusion.space": "proj",
        "method.fusion.scope": "align_only",
        "method.fusion.topology": "chain",
        "method.new.norm": "row_softmax",
        "method.new.detach": True,
    },
}
"""What identities of a method held once, with the only value that was left (docs/experiments.md says why)."""


class RunFolder:
    """A folder that one run owns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def claim(self, identity: dict[str, Any]) -> None:
        """Make sure that what is already in the folder is of the very run that `identity` describes."""
        if not (self.path / "identity.json").exists():
            return
        stored = self.read_json("identity.json")
        if not isinstance(stored, dict):
            raise InputError(f"{self.path / 'identity.json'} is not that of a run; choose another --out.")
        now = flat(json.loads(json.dumps(identity)))
        before = flat(stored)
        before |= {key: LATER[key] for key in LATER.keys() - before.keys() if key in now}
        gone = GONE.get(str(identity.get("method_name")), {})
        before = {key: value for key, value in before.items() if key in now or gone.get(key) != value}
        for key in now | before:
            if before.get(key) != now.get(key):
                raise InputError(
                    f"{self.path} holds a run with {key} = {before.get(key)!r}, not {now.get(key)!r}; "
                    "choose another folder with --out, or delete this one to start anew."
                )

    def finished(self) -> dict[str, Any] | None:
        """The record of the run, if it came to its end."""
        return self.read_json("scores.json") if (self.path / "scores.json").exists() else None

    def write_config(self, config: dict[str, Any]) -> None:
        write_text(self.path / "config.yaml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))

    def write_json(self, name: str, content: Any) -> None:
        write_text(self.path / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    def read_json(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise InputError(
                f"{self.path / name} cannot be read ({error}); restore it from a copy, or choose another --out."
            ) from error


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}, so that a difference can be named."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
