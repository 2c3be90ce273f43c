"""Words fit where they are said to fit, in the widest of the usual fonts."""

from __future__ import annotations

import lettering
import pytest

from letter_widths import measured


def test_the_room_of_words_is_not_underrated() -> None:
    for words in (
        "all images: a view finds the other view",
        "MMM www iii",
        "w_{old} = s_{ID}, w_{new}",
        "65,536",
    ):
        assert measured(words, 12) <= 1.04 * lettering.width(words, 12), words


def test_lines_are_few_and_about_equally_long() -> None:
    words = "labelled images: those of one class come together"
    lines = lettering.wrapped(words, 220)
    assert " ".join(lines) == words
    assert len(lines) == 2
    assert max(map(lettering.width, lines)) <= 220
    assert abs(lettering.width(lines[0]) - lettering.width(lines[1])) < 80
    assert lettering.wrapped("short", 220) == ["short"]


def test_indices_stand_below_the_line() -> None:
    small = '<tspan font-size="10" dy="3">'
    assert lettering.marked("L_{me} < q") == f'L{small}me</tspan><tspan dy="-3"> &lt; q</tspan>'
    assert lettering.plain("L_{con_u}, w_{old}") == "L_con_u, w_old"


@pytest.mark.parametrize(
    ("docstring", "formula"),
    [
        ("L = (1 - lam) * L_con_u + eps * L_me", "L = (1 − λ) L_{con_u} + ε L_{me}"),
        ("L_baseline + lambda_1 * L_new", "L_{baseline} + λ_{1} L_{new}"),
        ("1/H sum_h [ swap(l'_h, q'_h) ]", "1/H Σ_{h} [ swap(l′_{h}, q′_{h}) ]"),
        ("lam SupCon + (1 - w) InfoNCE", "λ L_{con_s} + (1 − w) L_{con_u}"),
    ],
)
def test_the_letters_of_docstrings_become_signs(docstring: str, formula: str) -> None:
    assert lettering.formula(docstring) == formula
