"""Which endings are read, which decoders are asked, and what to install for the others."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest
from PIL import Image

from holotype.data import image_files as formats
from holotype.data.image_files import IMAGE_EXTENSIONS, decoders, install_hint

DOCS = Path(__file__).parents[2] / "docs" / "data.md"


def test_every_ending_belongs_to_a_decoder() -> None:
    Image.init()
    kinds_of = Image.registered_extensions()
    asked = {*decoders(), "MPO"}  # JPEG's decoder opens it
    assert [ending for ending in IMAGE_EXTENSIONS if kinds_of[ending] not in asked] == []


def test_decoders_that_start_programs_or_read_anything_are_not_asked() -> None:
    assert not set(decoders()) & {"EPS", "WMF", "PSD", "FPX", "MIC", "PDF", "JPEG2000", "ICNS", "IM"}
    assert set(decoders()) >= {"JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM"}


def test_the_documentation_lists_the_endings() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert [
        ending
        for ending in (*formats.PILLOW_FORMATS, *formats.AVIF, *formats.HEIF)
        if f"`{ending}`" not in text
    ] == []


def test_pillow_heif_is_used_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the module's name is known here; its opener is asked to register itself before the first image is read."""
    registered = []
    module = types.ModuleType("pillow_heif")
    module.register_heif_opener = lambda: registered.append("HEIF")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pillow_heif", module)
    monkeypatch.setattr(formats, "HAS_HEIF", True)
    monkeypatch.setitem(Image.OPEN, "HEIF", (None, None))
    assert "HEIF" in decoders.__wrapped__()
    assert registered == ["HEIF"]


def test_what_to_install() -> None:
    assert install_hint("IMG_1.HEIC") == ("" if ".heic" in IMAGE_EXTENSIONS else "pillow-heif")
    assert install_hint("a.jpg") == install_hint("a.mov") == install_hint("") == ""


def test_an_old_pillow_has_no_avif() -> None:
    code = (
        "from PIL import features; features.modules.pop('avif', None);"
        "from holotype.data.image_files import IMAGE_EXTENSIONS, install_hint;"
        "assert '.avif' not in IMAGE_EXTENSIONS; print(install_hint('x.avif'))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "pillow 11.3 or later\n"
