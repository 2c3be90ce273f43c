"""The benchmark of reading images: every part is measured, and the file holds it."""

from __future__ import annotations

import json
from functools import partial

import decode as benchmark
from measure import make_photographs


def test_reading_is_measured_in_threads_and_for_large_photographs(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(benchmark, "make_photographs", partial(make_photographs, longer=80))
    monkeypatch.setattr(benchmark, "cpu_count", lambda: 2)
    monkeypatch.setattr(benchmark, "SIDES", (640, 480))
    out = tmp_path / "decode.json"
    words = ["--n-images", "12", "--n-large", "12", "--image-size", "32", "--out", str(out)]
    assert benchmark.main(words) == 0
    record = json.loads(out.read_text())
    rows = [(row["kind"], row["count"]) for row in record["scaling"]]
    assert rows == [("threads", 1), ("threads", 2), ("store", 2)]
    assert all(row["images_per_second"] > 0 for row in record["scaling"])
    assert record["large"]["mean_difference"] <= 4
