"""What tests of the command line share: images that may be spoilt, and what a refusal looks like."""

from pathlib import Path

import pytest

from tests.conftest import Outcome, draw_squares


@pytest.fixture
def squares(tmp_path: Path) -> Path:
    """Coloured squares of one's own, to be spoilt."""
    root = tmp_path / "squares"
    draw_squares(root)
    return root


def assert_sentence(outcome: Outcome, *words: str, before: str = " images, ") -> None:
    """Refused with one line that reads as a sentence and holds the words that matter.

    before: in lines that may stand before it, such as where images and cached tokens lie.
    """
    assert outcome.code == 2, (outcome.out, outcome.err)
    *told, sentence = outcome.err.splitlines()
    assert all(before in line for line in told), outcome.err
    assert sentence[-1] in ".?", outcome.err
    assert "Traceback" not in outcome.err
    assert [word for word in words if word not in sentence] == [], outcome.err
