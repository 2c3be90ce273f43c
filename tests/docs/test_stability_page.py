"""docs/stability.md: its rules are those of the code, its figures those of the records."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest

from holotype.cli.cut import EDITS
from holotype.cluster.unevenness import LEAST_LABELS, SPREAD
from holotype.discovery.several import TRAININGS

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / "docs" / "stability.md").read_text(encoding="utf-8")
START = (TOP / "docs" / "studies" / "29-start.md").read_text(encoding="utf-8")
START_LINES = " ".join(START.split())
RECORDS = TOP / "experiments" / "results" / "stability"


def record(name: str) -> dict:
    return json.loads((RECORDS / f"{name}.json").read_text())


def row(head: str, page: str = PAGE) -> list[str]:
    (found,) = re.findall(rf"^\| {re.escape(head)} \|(.*)\|$", page, re.MULTILINE)
    return [one.strip() for one in found.split("|")]


def cell(values: list[float]) -> str:
    return f"{mean(values):.1f} ± {stdev(values):.1f}"


def test_how_many_trainings_there_are() -> None:
    for device, table in {"CPU": TRAININGS["cpu"], "NVIDIA GPU": TRAININGS["cuda"]}.items():
        for least, n in table.items():
            assert row(f"{device}, from {least:,} images") == [str(n)]
    assert {min(table) for table in TRAININGS.values()} == {100}
    assert "fewer than 100 images" in PAGE


def test_the_rule_of_sizes() -> None:
    assert pytest.approx(1 / 3) == SPREAD
    assert "`s = 1/3` or more" in PAGE
    assert LEAST_LABELS == 4
    assert "or fewer than four" in PAGE
    assert f"cuts/12/{EDITS}" in PAGE


@pytest.mark.parametrize("part", ["chosen", "confirmed"])
def test_the_figures_are_those_of_the_records(part: str) -> None:
    five, eight = record(f"{part}-5"), record(f"{part}-8")
    assert (five["together"], eight["together"], five["seeds"]) == (5, 8, 25)
    assert five["command"] in PAGE
    assert five["commit"] == eight["commit"]
    assert five["commit"] in PAGE
    for one, other in zip(five["collections"], eight["collections"], strict=True):
        told, sizes = row(one["collection"]), one["all"]
        spread = "none" if one["spread"] is None else f"{one['spread']:.2f}"
        assert told[:4] == [f"{one['images']:,}", f"{one['ratio']}", spread, one["chosen"]]
        assert told[4:6] == [cell(sizes["equal"]["one"]), cell(sizes["different"]["one"])]
        assert told[6] == cell(sizes[one["chosen"]]["several"])
        assert told[7] == cell(other["all"][other["chosen"]]["several"])
    summed = row("**these chose the rules**" if part == "chosen" else "**these chose nothing**")
    for place, (of, name) in {4: (five, "before"), 6: (five, "now"), 7: (eight, "now")}.items():
        told = of["summary"][name]
        assert summed[place] == f"{told['mean']:.2f} ± {told['deviation']:.2f}"


def test_what_is_said_of_the_deviation() -> None:
    for part, words in (
        ("confirmed", "from {} to {} with five trainings and to {} with eight"),
        ("chosen", "it fell from {} to {} and {}"),
    ):
        five, eight = record(f"{part}-5")["summary"], record(f"{part}-8")["summary"]
        deviations = (five["before"], five["now"], eight["now"])
        assert words.format(*(f"{one['deviation']:.2f}" for one in deviations)) in PAGE
    five, eight = record("confirmed-5"), record("confirmed-8")
    gains = [one["summary"]["now"]["mean"] - one["summary"]["before"]["mean"] for one in (five, eight)]
    assert f"by {gains[0]:.1f} (five trainings) and {gains[1]:.1f} points (eight)" in PAGE
    assert f"(n = {five['summary']['now']['n']} and {eight['summary']['now']['n']})" in PAGE
    assert all(
        mean(one["all"][one["chosen"]]["several"]) > mean(one["all"]["equal"]["one"])
        for one in five["collections"]
    )
    for part, gain in (("chosen", "0.7"), ("confirmed", "0.0")):
        told = record(f"{part}-5")["summary"]
        assert f"{told['one, chosen sizes']['mean'] - told['before']['mean']:.1f}" == gain
    assert "by 0.7 points on the collections that chose the rules, and by 0.0 on the others" in PAGE
    errors = [np.mean([one["error"][name] for one in five["collections"]]) for name in ("one", "several")]
    errors.append(np.mean([one["error"]["several"] for one in eight["collections"]]))
    assert "{:.3f} with one training, {:.3f} with five, {:.3f} with eight".format(*errors) in PAGE


def test_where_new_categories_begin() -> None:
    parts = {"anywhere": "confirmed", "at centres": "centres-confirmed"}
    for head, part in parts.items():
        five, eight = (record(f"{part}-{n}")["summary"] for n in (5, 8))
        told = [five["one, chosen sizes"], five["now"], eight["now"]]
        assert row(head) == [f"{one['mean']:.2f} ± {one['deviation']:.2f}" for one in told]
    before, now = record("confirmed-5")["summary"]["before"], record("centres-confirmed-5")["summary"]["now"]
    assert f"with five of them, and it was {now['deviation'] / before['deviation']:.2f}" in START_LINES
    pairs = zip(*(record(f"{part}-8")["collections"] for part in parts.values()), strict=True)
    moved = [
        mean(centres["all"][centres["chosen"]]["several"])
        - mean(anywhere["all"][anywhere["chosen"]]["several"])
        for anywhere, centres in pairs
    ]
    assert f"the twelve collections move by {min(moved):.1f} to {max(moved):+.1f} points" in START_LINES
    centres = record("centres-confirmed-5")
    assert centres["command"] in START
    chosen = record("centres-chosen-5")
    assert chosen["command"] in START
    assert f"commits {centres['commit']} and {chosen['commit']}, seeds 0 to 24" in START
    seven = {one["collection"] for one in chosen["collections"]}
    several = [
        one["all"]["equal"]["several"]
        for one in record("chosen-5")["collections"]
        if one["collection"] in seven
    ]
    anywhere = f"{mean(map(mean, several)):.2f} ± {mean(stdev(one) ** 2 for one in several) ** 0.5:.2f}"
    now = chosen["summary"]["now"]
    assert (
        f"five trainings have {now['mean']:.2f} ± {now['deviation']:.2f}, from anywhere {anywhere}"
        in START_LINES
    )
    assert record("centres-confirmed-8")["commit"] == centres["commit"]


def test_whole_trainings_from_anywhere_beside_those_from_centres() -> None:
    """Of those from centres there is no record: what is said of the difference is held to the page's own cells."""
    ones, falls, gains = [], [], {"anywhere": [], "centres": []}
    for of in record("whole-9")["collections"]:
        if of["collection"] not in ("cub4", "cub6", "cifar4", "cifar5"):
            continue
        told, found = row(of["collection"], START), of["all"]["equal"]
        assert told[0] == f"{mean(found['one']):.1f}"
        assert told[2] == cell(found["several"])
        one, nine = float(told[1]), float(told[3].split()[0])
        ones.append(one - mean(found["one"]))
        falls.append(mean(found["several"]) - nine)
        gains["anywhere"].append(mean(found["several"]) - mean(found["one"]))
        gains["centres"].append(nine - one)
    flat = " ".join(PAGE.split())
    assert f"worse than nine from anywhere, by {min(falls):.1f} to {max(falls):.1f} points" in flat
    assert f"better from centres, by {min(ones):.1f} to {max(ones):.1f} points" in flat
    least, most = min(gains["anywhere"]), max(gains["anywhere"])
    assert f"nine together gain {least:.1f} to {most:.1f} points over one" in START_LINES
    assert f"they gain {max(gains['centres']):.1f} at most" in START_LINES
    assert min(gains["centres"]) == pytest.approx(-1)


def test_the_purity_of_what_comes_back() -> None:
    pairs = [pair for one in record("confirmed-5")["collections"] for pair in one["returns"]]
    purity = [[p for times, p in pairs if times == n] for n in range(6)]
    assert row("purity") == [f"{round(100 * mean(one))} %" for one in purity]
    assert row("categories") == [str(len(one)) for one in purity]


def test_the_check_with_real_trainings() -> None:
    whole = record("whole")
    assert whole["command"] in PAGE
    before, now = whole["summary"]["before"], whole["summary"]["now"]
    assert f"one training {before['mean']:.1f} ± {before['deviation']:.1f} (n = {before['n']})" in PAGE
    assert f"{now['mean']:.1f} ± {now['deviation']:.1f} (n = {now['n']})" in PAGE


def test_the_figures_of_whole_trainings_are_those_of_the_records() -> None:
    nine, thirteen = record("whole-9"), record("whole-13")
    assert nine["command"] in PAGE
    assert thirteen["command"] in PAGE
    for one, other in zip(nine["collections"], thirteen["collections"], strict=True):
        told = row(f"whole {one['collection']}")
        assert told[0] == f"{one['images']:,}"
        assert told[1] == cell(one["all"]["equal"]["one"])
        divisions = [np.array(each["all"]["equal"]["redrawn"]) for each in (one, other)]
        deviations = [np.sqrt(each.var(axis=1, ddof=1).mean()) for each in divisions]
        assert told[2:] == [f"{d.mean():.1f} ± {s:.1f}" for d, s in zip(divisions, deviations, strict=True)]
    sums = [nine["summary"]["before"], *(each["summary"]["now, redrawn"] for each in (nine, thirteen))]
    assert row("**whole trainings**")[1:] == [f"{one['mean']} ± {one['deviation']}" for one in sums]
