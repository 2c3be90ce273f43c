"""docs/confidence.md: its code runs, and its numbers of looks are exact."""

from __future__ import annotations

import re
from pathlib import Path

from holotype.results.describe import UNSURE, UNSURE_SHARE
from holotype.results.discovery import write_features
from holotype.results.purity import FAIRLY_PURE, UNIFORM_PRIOR, sample_size_hint
from holotype.results.review_queue import QUEUE_COLUMNS
from tests.discovery.made_round import made_discovery

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / "docs" / "confidence.md").read_text(encoding="utf-8")


def test_its_code_runs(tmp_path, monkeypatch, capsys) -> None:
    found = made_discovery("r", {"a": [0, 1, 2, 3], "new-01": list(range(4, 12))})
    found.save(tmp_path / "runs" / "photos-discover")
    write_features(tmp_path / "runs" / "photos-discover", found.images[["x", "y"]].to_numpy())
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out.splitlines()[-1] == "0.845"


def test_the_looks_are_exact() -> None:
    sizes, looks = re.findall(r"^\| (?:images in the category|look at) \| (.*) \|$", PAGE, re.MULTILINE)
    told = [int(cell.replace(",", "")) for cell in looks.split(" | ")]
    n = [int(cell.replace(",", "")) for cell in sizes.replace("very many", "1000000").split(" | ")]
    assert [sample_size_hint(one) for one in n] == told


def test_words_and_columns_are_told() -> None:
    assert f"| uniform | at least {UNIFORM_PRIOR} |" in PAGE
    assert f"| fairly uniform | {FAIRLY_PURE} to {UNIFORM_PRIOR} |" in PAGE
    assert f"below {UNSURE}; if that is more than {UNSURE_SHARE:.0%}".replace("%", " %") in PAGE
    assert set(QUEUE_COLUMNS) <= set(re.findall(r"`(\w+)`", PAGE))
