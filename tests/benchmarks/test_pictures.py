"""Pictures of boxes and arrows are drawn with the documents that show them."""

from __future__ import annotations

from pathlib import Path

import exhibits
import pictures

TOP = Path(__file__).resolve().parents[2]


def test_a_document_has_the_pictures_that_it_shows() -> None:
    text = (
        "![the methods](family.svg) ![measured](curves.svg) [a link](methods/gcd.svg) ![one](methods/gcd.svg)"
    )
    assert pictures.shown_in(text, "docs/methods.md") == ["docs/family.svg", "docs/methods/gcd.svg"]
    assert pictures.shown_in("![one](../family.svg)", "docs/methods/gcd.md") == ["docs/family.svg"]
    assert pictures.shown_in("![one](family.svg)", "README.md") == []


def test_every_picture_is_shown_somewhere() -> None:
    shown: set[str] = set()
    for page in (TOP / "docs").rglob("*.md"):
        shown |= set(pictures.shown_in(page.read_text(encoding="utf-8"), page.relative_to(TOP).as_posix()))
    assert shown == set(pictures.DRAWN)


def test_a_stale_picture_is_told_and_drawn_anew(tmp_path: Path, capsys) -> None:
    page = tmp_path / "docs" / "methods" / "gcd.md"
    page.parent.mkdir(parents=True)
    page.write_text("![how it works, in boxes and arrows](gcd.svg)\n")
    (tmp_path / "experiments" / "results").mkdir(parents=True)
    assert exhibits.main(["--check"], tmp_path) == 1
    assert "Stale: docs/methods/gcd.svg; run python benchmarks/exhibits.py." in capsys.readouterr().err
    assert not page.with_suffix(".svg").exists()
    assert exhibits.main([], tmp_path) == 0
    assert page.with_suffix(".svg").read_text(encoding="utf-8") == pictures.DRAWN["docs/methods/gcd.svg"]()
    assert exhibits.main(["--check"], tmp_path) == 0
    page.with_suffix(".svg").write_text("<svg/>\n")
    assert exhibits.main(["--check", "docs/methods/gcd.md"], tmp_path) == 1
