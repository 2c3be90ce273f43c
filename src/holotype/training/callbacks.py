"""Callbacks: what is told of a run while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


class Callback:
    """Base of all callbacks; override what you need. Called in the first process alone."""

    def on_step_end(self, step: int, terms: Mapping[str, Tensor]) -> None:
        """After each step. step: taken so far. terms: the loss by name, on the device: reading one waits for it."""

    def on_epoch(self, line: Mapping[str, Any]) -> None:
        """After each line of metrics.jsonl: `kind` is epoch (losses, rate, diagnostics) or score (All, Old, New)."""

    def on_finish(self, record: Any) -> None:
        """After the run. record: its Record, as in scores.json."""
