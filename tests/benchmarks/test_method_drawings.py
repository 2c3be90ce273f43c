"""The drawing of a method is true to the method, and can be read."""

from __future__ import annotations

import inspect
import re

import pytest
import torch
from family import by_kmeans
from flow import COLUMNS, PAD, Box, Loss, laid_out, lines_of, pill_width, routes
from flow_svg import WIDE
from lettering import formula
from method_drawings import DRAWINGS, in_words, picture, titled

from holotype.methods import METHODS, Batch, Method, Moment, Task
from letter_widths import measured

TASK = Task(n_known=3, k=6, dim=16, n_images=200, n_labelled=50, epochs=4)
SMALL = {name: {"proj_out": 0} for name in ("gcd", "promptcal", "dccl")}
EVERY = pytest.mark.parametrize("name", METHODS)


def terms_of(name: str) -> set[str]:
    """Names of all that the method minimises, in every one of its stages."""
    method = METHODS[name](METHODS[name].Config(**SMALL.get(name, {})), TASK)
    found: set[str] = set()
    for stage in method.stages():
        found |= set(method.loss(batch_of(name, method, stage), clock_of(method, stage)))
    return found


def batch_of(name: str, method: Method, stage) -> Batch:
    n = 8 + 128 * (name == "dccl")  # the images of its concepts stand at the end
    shape = [stage.views.weak + stage.views.strong, n, TASK.dim]
    if name == "promptcal":  # CLS and prompts, then those of the teacher
        shape.insert(2, 4 if stage.name == "affinity" else 2)
    draws = {key: torch.rand(size) for key, size in method.draws(stage, n).items()}
    label, labelled = torch.arange(n) % 3, torch.arange(n) % 2 == 0
    return Batch(torch.randn(shape), label, labelled, torch.arange(n), draws, stage.name)


def clock_of(method: Method, stage) -> dict[str, torch.Tensor]:
    values = {"epoch": 1.0, "progress": 0.5, **method.schedule(stage, Moment(1, 4))}
    return {key: torch.tensor(value) for key, value in values.items()}


@EVERY
def test_every_loss_is_drawn_and_no_other(name: str) -> None:
    assert {term for one in DRAWINGS[name].losses for term in one.terms} == terms_of(name)


@EVERY
def test_the_formula_is_that_of_the_card(name: str) -> None:
    """It stands in the docstring; of a second line, which says what a symbol stands for, the symbols do."""
    module = re.sub(r"\s+", " ", inspect.getmodule(METHODS[name]).__doc__)
    drawn = [re.sub(r"\s+", " ", line.partition(": L = ")[2] or line) for line in DRAWINGS[name].total]
    assert not DRAWINGS[name].losses or drawn[0] in module
    assert all(line in module for line in drawn if "=" in line)


@EVERY
def test_symbols_of_the_formula_are_those_of_the_losses(name: str) -> None:
    symbols = {symbol for one in DRAWINGS[name].losses for symbol in one.symbols if symbol.startswith("L_")}
    written = set(re.findall(r"L_\{\w+\}", formula(" ".join(DRAWINGS[name].total))))
    whole = {"L_{SimGCD}", "L_{baseline}"}
    base = {one for one in symbols if one in {"L_{cls_u}", "L_{me}", "L_{cls_s}", "L_{con_u}", "L_{con_s}"}}
    assert written - whole == (symbols - base if "L_{SimGCD}" in written else symbols)


@EVERY
def test_it_ends_as_the_method_does(name: str) -> None:
    clusters = {"k-means": "Nearest centre"}.get(METHODS[name].card.title, "Semi-supervised k-means")
    assert (DRAWINGS[name].end[1].title == clusters) == by_kmeans(name)


@EVERY
def test_only_what_learns_is_drawn_as_learning(name: str) -> None:
    """A method without stages has no such box; the others have the last block, at least one head, frozen blocks."""
    kinds = [part.kind for part in DRAWINGS[name].parts.values() if isinstance(part, Box)]
    assert "frozen" in kinds
    assert (kinds.count("learns") >= 2) == (name != "kmeans")


def test_all_methods_have_one() -> None:
    assert set(DRAWINGS) == set(METHODS)


@EVERY
def test_all_parts_have_a_place_and_every_loss_an_arrow(name: str) -> None:
    drawing = DRAWINGS[name]
    assert sorted(drawing.rows.replace("|", " ").replace("/", " ").split()) == sorted(drawing.made)
    ends = {link.end for link in drawing.links}
    assert {name for name, part in drawing.made.items() if isinstance(part, Loss)} <= ends


@EVERY
def test_no_arrow_runs_through_a_box(name: str) -> None:
    places = laid_out(DRAWINGS[name])
    boxes = {one: at for one, at in places.items() if one != "f"}
    for arrow in routes(DRAWINGS[name], places):
        for (x, y), (to, down) in zip(arrow.corners, arrow.corners[1:], strict=False):
            left, right, top, bottom = min(x, to), max(x, to), min(y, down), max(y, down)
            for one, at in boxes.items():
                inside = left < at.right and right > at.x and top < at.bottom and bottom > at.y
                assert not inside, (arrow.link, one)


@EVERY
def test_no_two_boxes_overlap(name: str) -> None:
    places = [at for one, at in laid_out(DRAWINGS[name]).items() if one != "f"]
    for number, at in enumerate(places):
        for other in places[number + 1 :]:
            assert at.column != other.column or at.bottom < other.y or other.bottom < at.y


@EVERY
def test_no_word_leaves_its_box(name: str) -> None:
    drawing, places = titled(name), laid_out(DRAWINGS[name])
    columns = {id(part): places[one].column for one, part in drawing.parts.items()}
    columns |= {id(part): column for column, part in enumerate(drawing.end)}
    for part in [*drawing.parts.values(), *drawing.end]:
        column = columns[id(part)]
        room = COLUMNS[column][1] - PAD
        if isinstance(part, Box):
            assert part.kind == "images" or measured(part.title, 12, bold=True) < room - 4, part.title
        else:
            pills = sum(pill_width(symbol) + 4 for symbol in part.symbols)
            assert all(measured(symbol, 12, bold=True) < pill_width(symbol) - 4 for symbol in part.symbols)
            assert pills < room
            room -= pills * (len(part.symbols) == 1)
        assert all(measured(line, 12) < room - 4 for line in lines_of(part, column)), part
    assert measured(drawing.head, 16, bold=True) < WIDE - 48
    assert all(measured(formula(line), 13) < WIDE - 48 for line in drawing.total)


@EVERY
def test_the_key_stays_inside(name: str) -> None:
    x, last = re.findall(r'<text x="([\d.]+)" y="[\d.]+" font-size="11">([^<]+)<', picture(name))[-1]
    assert float(x) + measured(last, 11) < WIDE - 12


@EVERY
def test_it_is_small_and_says_what_is_seen(name: str) -> None:
    text = picture(name)
    assert len(text) < 20_000
    assert f'viewBox="0 0 {WIDE} ' in text
    assert min(float(size) for size in re.findall(r'font-size="([\d.]+)"', text)) >= 10
    assert f">{METHODS[name].card.title}: " in text
    assert "]" not in in_words(name)
    assert len(in_words(name).split()) > 30
