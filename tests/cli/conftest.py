"""Images that tests of the command line may spoil."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import draw_squares


@pytest.fixture
def squares(tmp_path: Path) -> Path:
    """Coloured squares of one's own, to be spoilt."""
    root = tmp_path / "squares"
    draw_squares(root)
    return root
