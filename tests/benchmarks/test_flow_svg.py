"""What a drawing shows is what it holds, and it says the same in words."""

from __future__ import annotations

from xml.etree import ElementTree

from flow import Box, Drawing, Loss
from flow_svg import INKS, LOOKS, draw, seen, told

DRAWING = Drawing(
    "Ours: an example",
    {"images": Box("images", kind="images"), "last": Box("Last block", kind="learns")},
    {
        "head": Box("Head & more", "words", "learns"),
        "memory": Box("Memory", "of f", "kept"),
        "one": Loss(("L_{one}",), "labelled images: together", ("labelled",), ("one",)),
        "two": Loss(("L_{a}", "L_{b}"), "two at once", ("unlabelled", "all"), ("a", "b")),
    },
    "head | one / memory | two",
    "f>head head>one f~memory memory=two",
    ("L = L_one + lam L_a",),
    (Box("Every image"), Box("Classifier"), Box("Category", "the largest")),
)
SVG = "{http://www.w3.org/2000/svg}"


def test_every_part_and_every_arrow_is_drawn() -> None:
    root = ElementTree.fromstring(draw(DRAWING))
    words = {"".join(text.itertext()) for text in root.iter(f"{SVG}text")}
    assert {"Head & more", "Memory", "Lone", "La", "Lb", "At the end", "Category", "L = Lone + λ La"} <= words
    lines = [path for path in root.iter(f"{SVG}path") if path.get("marker-end")]
    network, own, end, key = 2, 4, 2, 1
    assert len(lines) == network + own + end + key
    assert sum(line.get("stroke-dasharray") is not None for line in lines) == 1 + key
    assert sum(line.get("marker-start") is not None for line in lines) == 1


def test_a_pill_has_the_colour_of_the_images_that_it_sees() -> None:
    text = draw(DRAWING)
    for sees in ("labelled", "unlabelled", "all"):
        assert text.count(f'rx="11" fill="{INKS[sees][0]}"') == 1
    assert text.count(f'stroke="{LOOKS["kept"][1]}"') == 2  # the box and the key


def test_the_key_has_the_signs_that_are_there() -> None:
    text = draw(DRAWING)
    assert ">remembered<" in text
    assert ">loss: unlabelled<" in text
    assert ">loss: no image<" not in text
    assert ">stands still<" not in text


def test_it_says_in_words_what_it_shows() -> None:
    assert seen(DRAWING) == (
        "Ours: an example. Arrows lead through boxes: images, Last block, the feature f; then Head & more, Memory; "
        "the losses L_one, L_a, L_b. At the end: Every image, Classifier, Category."
    )
    words = told(DRAWING)
    assert "L_one: labelled images: together." in words
    assert "f to Head & more; Head & more to L_one; f to Memory; Memory to L_a, L_b." in words
    assert "&amp;" in draw(DRAWING)


def test_nothing_is_fetched() -> None:
    text = draw(DRAWING)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "url(" not in text.replace("url(#end)", "")
