"""Figures need matplotlib, and say so."""

from __future__ import annotations

import drawing
import pytest

from holotype.errors import InputError


def test_without_matplotlib_there_is_advice(monkeypatch) -> None:
    def absent(name: str):
        raise ImportError(name)

    monkeypatch.setattr(drawing, "import_module", absent)
    with pytest.raises(InputError, match="pip install matplotlib"):
        drawing.pyplot()
