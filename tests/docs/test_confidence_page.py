"""docs/confidence.md: its code runs, its numbers of looks are exact, and its figures are those of the records."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean
from typing import Any

from holotype.categories.features import write_features
from holotype.categories.purity import FAIRLY, UNIFORM, look_at
from holotype.categories.queue import COLUMNS
from holotype.categories.relations import UNSURE, UNSURE_SHARE
from tests.discovery.made_round import made_discovery

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / "docs" / "confidence.md").read_text(encoding="utf-8")


def test_its_code_runs(tmp_path, monkeypatch, capsys) -> None:
    found = made_discovery("r", {"a": [0, 1, 2, 3], "new-01": list(range(4, 12))})
    found.save(tmp_path / "runs" / "photos-discover")
    write_features(tmp_path / "runs" / "photos-discover", found.images[["x", "y"]].to_numpy())
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out.splitlines()[-1] == "0.845"


def test_the_looks_are_exact() -> None:
    sizes, looks = re.findall(r"^\| (?:images in the category|look at) \| (.*) \|$", PAGE, re.MULTILINE)
    told = [int(cell.replace(",", "")) for cell in looks.split(" | ")]
    n = [int(cell.replace(",", "")) for cell in sizes.replace("very many", "1000000").split(" | ")]
    assert [look_at(one) for one in n] == told


def test_words_and_columns_are_told() -> None:
    assert f"| uniform | at least {UNIFORM} |" in PAGE
    assert f"| fairly uniform | {FAIRLY} to {UNIFORM} |" in PAGE
    assert f"below {UNSURE}; if that is more than {UNSURE_SHARE:.0%}".replace("%", " %") in PAGE
    assert set(COLUMNS) <= set(re.findall(r"`(\w+)`", PAGE))


def record(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((TOP / "experiments/results" / f"{name}.json").read_text())
    return content


def cases() -> list[dict[str, Any]]:
    return [*record("confidence/embedded")["cases"], *record("confidence/twenty")["cases"]]


def inside(some: list[dict[str, Any]]) -> tuple[int, int]:
    """Categories whose purity lies in its interval, and all of them."""
    return sum(round(case["inside"] * case["categories"]) for case in some), sum(
        case["categories"] for case in some
    )


def test_the_figures_are_those_of_the_record() -> None:
    for case in cases():
        (row,) = re.findall(rf"^\| {case['case']} \| (.*) \|$", PAGE, re.MULTILINE)[:1]
        assert row.split(" | ") == [
            f"{case['images']:,}",
            f"{case['k']}, {case['classes']}",
            f"{100 * case['all']:.1f} %",
            *(f"{case[name]:.3f}" for name in ("own_error", "error")),
            *(f"{case[name]:.2f}" for name in ("mean_own", "mean")),
            *(f"{100 * case[name]:.0f} %" for name in ("doubtful", "mistakes")),
            "{} of {}".format(*inside([case])),
        ]
    assert record("confidence/embedded")["command"] in PAGE
    assert record("confidence/embedded")["commit"] in PAGE
    labelling = record("labelling/embedded")
    assert labelling["command"] in PAGE
    (mean,) = re.findall(r"^\| mean \| .* \| (\d+) \|$", PAGE, re.MULTILINE)
    assert round(labelling["needed"][0]["queue"]) == int(mean)


def test_what_was_aimed_at_is_told_with_what_was_reached() -> None:
    every = cases()
    for start, what in (
        ("full", "the whole embedded sample"),
        ("part", "parts of it"),
        ("cub", "twenty classes of CUB"),
        ("cifar", "twenty classes of the CIFAR-100 sample"),
    ):
        errors = [case["error"] for case in every if case["case"].startswith(start)]
        low = sum(error <= 0.1 for error in errors)
        assert f"{what} | {mean(errors):.3f} on average, {low} of {len(errors)} |" in PAGE
    assert f"Over all twenty the error is {mean(case['error'] for case in every):.3f}" in PAGE
    held = [case["mistakes"] for case in every]
    half = sum(share >= 0.5 for share in held)
    assert f"| {100 * mean(held):.0f} % on average, {half} of {len(held)} | no |" in PAGE
    few, others = ([c for c in every if (c["k"] < c["classes"]) is fewer] for fewer in (True, False))
    right, of = inside(every)
    assert f"{right} of {of}, {100 * right / of:.0f} %" in PAGE
    assert "{} of {} where there are fewer".format(*inside(few)) in PAGE
    assert "{} of {} elsewhere".format(*inside(others)) in PAGE


def test_what_was_drawn_for_the_check_alone_is_told() -> None:
    later = record("confidence/later")["cases"]
    first, second, third = (f"{case['error']:.3f}" for case in later)
    right, of = inside(later)
    assert f"errors of {first}, {second} and {third}, and {right} of their {of} categories inside" in PAGE


def test_only_where_it_is_told_no_list_could_hold_half_of_the_mistakes() -> None:
    def too_short(case: dict[str, Any]) -> bool:
        wrong = (1 - case["all"]) * (case["images"] - case["labelled"])
        return bool(case["doubtful"] * case["images"] < wrong / 2)

    assert [case["case"] for case in cases() if too_short(case)] == ["part2", "part4"]
    assert "as in part2 and part4, no list of that size can hold half" in PAGE


def test_the_figures_of_nine_trainings_are_those_of_the_record() -> None:
    rows = {name: row for name, row in record("folders/votes")["rows"].items() if row["draws"]}
    flat = " ".join(PAGE.split())

    def all_of(way: str, key: str, kind: str = "") -> float:
        return mean(row[way][key] for name, row in rows.items() if name.startswith(kind))

    assert f"off by {all_of('weighed', 'error'):.3f} on average** over sixteen collections" in flat
    assert len(rows) == 16
    assert f"without their votes is off by {all_of('votes', 'error'):.3f}" in flat
    of_cub, of_cifar = (all_of("weighed", "error", kind) for kind in ("cub", "cifar"))
    assert f"of CUB it is {of_cub:.3f}, on eight of the CIFAR-100 sample {of_cifar:.3f}" in flat
    good = sum(row["weighed"]["error"] <= 0.1 for row in rows.values())
    assert f"at most 0.10 in {good} of the 16" in flat
    held = [all_of("weighed", "held", kind) for kind in ("cub", "cifar")]
    assert f"holds {held[0]:.0%} of".replace("%", " %") in flat
    assert f"and {held[1]:.0%} on the others".replace("%", " %") in flat
