"""`embed` and `assign` through all kinds of sources, with noise in the network's place."""

from __future__ import annotations

import pandas as pd
import slice_memory
from slice_memory import assign_noise, embed_noise, make_run, make_sources


def test_all_kinds_of_sources_go_through_in_a_stream(
    tmp_path, monkeypatch, squares_folder, tiny_backbone_file
) -> None:
    monkeypatch.setattr(slice_memory, "IN_A_FOLDER", 10)
    monkeypatch.setattr(slice_memory, "EACH", 8)
    monkeypatch.setattr(slice_memory, "DIM", 4)
    flags = ("--backbone.name", str(tiny_backbone_file), "--k", "4")
    run = make_run(tmp_path, str(squares_folder / "squares.csv"), *flags)
    for kind, source in make_sources(25, tmp_path).items():
        told = embed_noise(source, tmp_path / f"embedded {kind}")
        assert told["rows"] == 25
        assert len(list((tmp_path / f"embedded {kind}").glob("part-*.parquet"))) == 4
        told = assign_noise(run, source, tmp_path / f"assigned {kind}")
        parts = sorted((tmp_path / f"assigned {kind}").glob("part-*.parquet"))
        assert told["rows"] == sum(len(pd.read_parquet(part)) for part in parts) == 25
        assert pd.read_parquet(parts[0])["category_id"].notna().all()
