"""Features are kept in half precision, and those of something else are not taken."""

import numpy as np

from holotype.results.discovery import FEATURES, read_features, write_features


def test_features_come_back_in_half_precision(tmp_path) -> None:
    features = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    features[2] = np.nan
    write_features(tmp_path, features)
    found = read_features(tmp_path, 5)
    assert found is not None
    assert found.dtype == np.float16
    assert np.allclose(found, features, atol=2e-3, equal_nan=True)


def test_what_is_not_of_these_images_is_not_taken(tmp_path) -> None:
    assert read_features(tmp_path, 5) is None
    write_features(tmp_path, np.zeros((4, 3)))
    assert read_features(tmp_path, 5) is None
    (tmp_path / FEATURES).write_bytes(b"cut off")
    assert read_features(tmp_path, 4) is None


def test_every_flipped_bit_is_noticed_and_said(tmp_path, caplog) -> None:
    write_features(tmp_path, np.ones((2, 3)))
    whole = (tmp_path / FEATURES).read_bytes()
    for place in range(len(whole)):
        caplog.clear()
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        (tmp_path / FEATURES).write_bytes(flipped)
        assert read_features(tmp_path, 2) is None
        assert f"{FEATURES} was damaged" in caplog.text
