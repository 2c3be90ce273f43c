"""Boxes stand in their rows, and arrows run between them."""

from __future__ import annotations

from flow import COLUMNS, F_AT, GAP, TOP, Box, Drawing, Link, Loss, height, laid_out, lowest, routes

END = (Box("a"), Box("b"), Box("c"))
NETWORK = {"images": Box("images", kind="images"), "last": Box("Last block", "gives f", "learns")}
LOSS = Loss(("L_{one}",), "all images: alike", ("all",), ("one",))


def drawing(made, rows: str, arrows: str, network=NETWORK) -> Drawing:
    return Drawing("Head", network, made, rows, arrows, ("L = L_one",), END)


TWO = drawing(
    {"head": Box("Head"), "one": LOSS, "two": LOSS, "kept": Box("Memory", kind="kept"), "three": LOSS},
    "head | one two / kept | three",
    "f>head head>one head>two f~kept kept~three head~three",
)


def test_rows_keep_together_what_is_in_them() -> None:
    at = laid_out(TWO)
    assert [at[name].column for name in ("images", "head", "one", "kept")] == [0, 1, 2, 1]
    assert at["two"].y == at["one"].bottom + GAP
    assert at["head"].middle == (at["one"].y + at["two"].bottom) / 2
    assert at["kept"].middle == at["three"].middle
    assert at["three"].y >= at["two"].bottom + GAP
    assert (at["f"].x, at["f"].y) == (F_AT, at["last"].middle)


def test_what_is_lower_than_the_network_stands_in_its_middle() -> None:
    at = laid_out(drawing({"head": Box("Head"), "one": LOSS}, "head | one", "f>head head>one"))
    assert at["images"].y == TOP
    assert at["one"].y - TOP == lowest(at) - at["one"].bottom > 0


def test_a_box_grows_with_its_words() -> None:
    assert height(Box("A", "one line"), 1) < height(Box("A", "one line " * 6), 1)
    assert height(Box("A", "first\nsecond"), 1) == height(Box("A", "one"), 1) + 16
    assert height(Box("A", "one line " * 6), 2) < height(Box("A", "one line " * 6), 0)


def test_arrows_begin_and_end_at_their_boxes() -> None:
    at = laid_out(TWO)
    for arrow in routes(TWO, at):
        a, b = at[arrow.link.start], at[arrow.link.end]
        (x, y), (to, into) = arrow.corners[0], arrow.corners[-1]
        assert a.x <= x <= a.right
        assert a.y <= y <= a.bottom
        assert (arrow.link.end == "f") or b.x - 1 <= to <= b.right
        assert b.y - 1 <= into <= b.bottom + 1


def test_arrows_with_and_without_gradient_are_apart() -> None:
    """Where they leave one box, and where they come into another; those of two boxes turn in two lanes."""
    arrows = {arrow.link: arrow.corners for arrow in routes(TWO, laid_out(TWO))}
    plain, dashed = arrows[Link("head", "one")], arrows[Link("head", "three", "~")]
    assert plain[0][1] != dashed[0][1]
    other = arrows[Link("kept", "three", "~")]
    assert dashed[-1][1] != other[-1][1]
    assert dashed[1][0] != other[1][0]
    assert all(sum(COLUMNS[1]) < line[1][0] < COLUMNS[2][0] for line in (plain, dashed, other))


def test_a_teacher_follows_and_gives_no_feature() -> None:
    network = {**NETWORK, "teacher": Box("Teacher", kind="kept")}
    one = drawing({"head": Box("Head"), "one": LOSS}, "head | one", "f>head head>one", network)
    assert one.links[:3] == [Link("images", "last"), Link("last", "f"), Link("last", "teacher", "~")]
    at = laid_out(one)
    assert at["f"].y == at["last"].middle
    assert at["teacher"].y > at["last"].y
