"""Counts, lists, sizes and durations read as words; the nearest name is told where one is near."""

from pathlib import Path

from holotype.utils import text as module
from holotype.utils.text import format_bytes, format_duration, join_or, plural, suggest, suggest_path


def test_the_nearest_name_and_counts_lists_durations_and_sizes_read_as_words() -> None:
    assert suggest("simgdc", iter({"rpc": 1, "simgcd": 2})) == " (did you mean simgcd?)"
    assert suggest("", ["rpc"]) == suggest("zebra", ["rpc", "gcd"]) == suggest("rpc", []) == ""
    counts = [plural(1, "edit"), plural(2000, "edit"), plural(3, "category", "categories")]
    assert counts == ["1 edit", "2,000 edits", "3 categories"]
    assert [join_or(["a"]), join_or(iter("ab")), join_or("abc")] == ["a", "a or b", "a, b or c"]
    durations = [format_duration(s) for s in (40.2, 720, 12_000, 5 * 86_400, float("nan"))]
    assert durations == ["40 s", "12 min", "3 h 20 min", "5 days", "an unknown time"]
    assert [format_bytes(n) for n in (999, 31_000_000, 1_600_000_000)] == ["999 bytes", "31.0 MB", "1.6 GB"]


def test_files_and_folders_are_looked_for_where_the_path_leads(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "peers.yaml").touch()
    monkeypatch.chdir(tmp_path)
    assert suggest_path("phots/") == " (did you mean photos?)"
    assert suggest_path(tmp_path / "peer.yaml") == f" (did you mean {tmp_path / 'peers.yaml'}?)"
    for path in ("photos/nothing.yaml", "gone/peers.yaml", "zebra", "/", "", "a\0b"):
        assert suggest_path(path) == ""
    deep = tmp_path / "a folder with quite a long name" / "and another one"
    deep.mkdir(parents=True)
    (deep / "x.csv").touch()
    assert suggest_path(deep / "labels.parquet") == ""  # the folders before a name are not compared
    monkeypatch.setattr(module, "MAX_SUGGESTIONS", 0)
    assert suggest_path("phots") == ""
