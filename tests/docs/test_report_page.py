"""docs/report.md: its command runs as it stands."""

from __future__ import annotations

import re
import shlex
import zipfile
from pathlib import Path

import pandas as pd

from report.made import make_discovery

PAGE = Path(__file__).resolve().parents[2] / "docs" / "report.md"


def test_the_command_runs(tmp_path, monkeypatch, holotype) -> None:
    monkeypatch.chdir(tmp_path)
    make_discovery(tmp_path / "photos", 30).save(Path("runs/photos-discover"))
    (line,) = re.findall(r"^```bash\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    outcome = holotype(*shlex.split(line)[1:], "--no-progress")
    assert outcome.code == 0, outcome.err
    assert "To mail: photos.zip," in outcome.out
    with zipfile.ZipFile("photos.zip") as opened:
        opened.extractall("sent")
    assert Path("sent/photos/report.html").is_file()
    for table in ("assignments.csv", "categories.csv"):
        assert len(pd.read_csv(f"sent/photos/{table}"))
        assert f"`{table}`" in PAGE.read_text(encoding="utf-8")
