"""The file of a sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from holotype.data.labels import check_target, read_sample_info, write_sample_file
from holotype.data.load import load_table
from holotype.errors import InputError


def test_written_and_known_again(tmp_path: Path) -> None:
    file = tmp_path / "sample.parquet"
    write_sample_file(
        file, ["a.jpg", "b.jpg"], ["", "fox"], np.array([2.5, 1.0]), np.array([0, 3]), {"seed": 4}
    )
    frame = pd.read_parquet(file)
    assert frame.to_dict("list") == {
        "path": ["a.jpg", "b.jpg"],
        "label": ["", "fox"],
        "weight": [2.5, 1.0],
        "cell": [0, 3],
    }
    assert read_sample_info(file) == {"seed": 4}
    with pytest.raises(InputError, match="--overwrite"):
        check_target(file)
    check_target(file, overwrite=True)


def test_a_column_weight_alone_makes_no_sample(tmp_path: Path) -> None:
    """Somebody's list of animals may say what they weigh."""
    file = tmp_path / "animals.parquet"
    pd.DataFrame({"path": ["a.jpg"], "label": [""], "weight": [12.0]}).to_parquet(file)
    assert read_sample_info(file) is None
    (tmp_path / "broken.parquet").write_bytes(b"nothing")
    assert read_sample_info(tmp_path / "broken.parquet") is None
    assert read_sample_info(tmp_path / "absent.parquet") is None
    with pytest.raises(InputError, match=r"as \.parquet"):
        check_target(tmp_path / "sample.csv")


def test_a_column_weight_of_ones_own_is_left_alone(tmp_path: Path) -> None:
    """What an animal weighs is no weight of a sample, nor need it be a number."""
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "list.csv").write_text("path,label,weight\na.png,fox,heavy\n")
    assert load_table(tmp_path / "list.csv").weight is None
