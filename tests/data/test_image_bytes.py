"""One place for the bytes of images that are no files of their own."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from holotype.data.exif import read_exif, upright_size
from holotype.data.hashing import open_image_bytes, read_image_bytes
from holotype.data.storage import StorageError

from .packed import square, write_parquet, write_tar


def test_bytes_come_from_wherever_they_lie(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", [("1.png", square())])
    parquet = write_parquet(tmp_path / "a.parquet", [("1", square(), "")])
    assert read_image_bytes(f"{tar}#1") == read_image_bytes(f"{parquet}#0") == square()
    assert read_image_bytes(str(tmp_path / "1.png")) is None
    assert open_image_bytes(str(tmp_path / "1.png")) == str(tmp_path / "1.png")
    with pytest.raises(StorageError, match="no image '2'"):
        read_image_bytes(f"{tar}#2")


def test_heads_are_read_inside_a_tar(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x010F], exif[0x0110], exif[0x0112] = "Reconyx", "HC600", 6
    stream = io.BytesIO()
    Image.new("RGB", (6, 4)).save(stream, format="JPEG", exif=exif)
    tar = write_tar(tmp_path / "a.tar", [("1.jpg", stream.getvalue())])
    assert read_exif(f"{tar}#1").camera == "Reconyx HC600"
    assert upright_size(f"{tar}#1") == (4, 6)
