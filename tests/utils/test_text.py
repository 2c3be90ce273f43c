"""The nearest name is told where one is near, and nothing where none is."""

from __future__ import annotations

from pathlib import Path

from holotype.utils import text as module
from holotype.utils.text import format_bytes, format_duration, join_or, plural, suggest, suggest_path


def test_the_nearest_name_or_none() -> None:
    assert suggest("simgdc", ["rpc", "simgcd", "gcd"]) == " (did you mean simgcd?)"
    assert suggest("", ["rpc"]) == suggest("zebra", ["rpc", "gcd"]) == suggest("rpc", []) == ""
    assert suggest("simgdc", iter({"simgcd": 1})) == " (did you mean simgcd?)"


def test_files_and_folders_are_looked_for_where_the_path_leads(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "peers.yaml").touch()
    monkeypatch.chdir(tmp_path)
    assert suggest_path("phots/") == " (did you mean photos?)"
    assert suggest_path(tmp_path / "peer.yaml") == f" (did you mean {tmp_path / 'peers.yaml'}?)"
    assert suggest_path("photos/nothing.yaml") == suggest_path("gone/peers.yaml") == ""
    assert suggest_path("zebra") == suggest_path("/") == suggest_path("") == suggest_path("a\0b") == ""


def test_a_name_is_compared_and_not_the_folders_before_it(tmp_path: Path) -> None:
    """In a long path any two names are alike by their beginnings."""
    deep = tmp_path / "a folder with quite a long name" / "and another one of the same length"
    deep.mkdir(parents=True)
    (deep / "x.csv").touch()
    assert suggest_path(deep / "labels.parquet") == ""


def test_of_a_folder_of_many_not_all_are_looked_at(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_SUGGESTIONS", 0)
    (tmp_path / "photos").mkdir()
    assert suggest_path(tmp_path / "phots") == ""


def test_counts_and_lists_read_as_words() -> None:
    assert [plural(1, "edit"), plural(2000, "edit"), plural(3, "category", "categories")] == [
        "1 edit",
        "2,000 edits",
        "3 categories",
    ]
    assert [join_or(["a"]), join_or(iter("ab")), join_or("abc")] == ["a", "a or b", "a, b or c"]


def test_durations_and_sizes_have_units() -> None:
    assert [format_duration(s) for s in (40.2, 720, 12_000)] == ["40 s", "12 min", "3 h 20 min"]
    assert [format_bytes(n) for n in (999, 999_960, 1_600_000_000)] == ["999 bytes", "1.0 MB", "1.6 GB"]
