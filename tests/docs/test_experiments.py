"""The studies in experiments/ can be run, and each selects its own records and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holotype.data.sources import collection_name
from holotype.runs.identity import fits, outline
from holotype.runs.record import Record
from holotype.runs.records import Records
from holotype.runs.study import Study, StudyRow, read_study
from holotype.runs.sweep import resolve_row, select
from tests.made_study import asked_for

TOP = Path(__file__).parents[2]
STUDIES = sorted((TOP / "experiments").glob("*.yaml"))
LIVE = [path for path in STUDIES if read_study(path).commit is None]
GOLDEN = """
01-first-look
    simgcd 2, debgcd-published 2, debgcd-compact 2, debgcd-compact-coupled 2, reading 2, compact 2
02-weights
    simgcd 2, debgcd-published 2, debgcd-compact 2, compact 2, published 2, guard-soft 2, guard-hard 2,
    calibrate-rank 2, calibrate-mean 2, memory 2, sharpen-3 2, score-at-argmax 2, rank-and-guard 2,
    guard-lambda_2=1 2, published-guard-hard 2, published-rank 2
03-forms
    no-new 2, sharpen-3 2, sharpen-6 2, pair 2, pair-tau-0.1-sharpen-3 2, sharpen-3-fuse-all 2,
    sharpen-3-classifier 2, compact-sharpen-6 2
04-sharper
    compact-sharpen-6 5, compact-sharpen-12 2, compact-sharpen-6-fuse-all 2
05-known
    rpc 5, sharpen-7 5, sharpen-8 5, guard-hard 5, guard-hard-sharpen-3 5, noisy-or 5
06-choices
    rpc 3, coupled 3, published-heads 3, two-stage 3, static-table 3, fuse-features 3, star 3,
    random-pairs 3, classifier-prototypes 3, exp-shift 3, not-detached 3, simgcd-base 3,
    paper-temperatures 3, mu-1 3, no-ramp 3
07-ramp
    no-ramp 3, ramp-30 3, ramp-60 3, ramp-100 3
08-fusion
    debgcd-published 5, no-fusion 5, no-fusion-sharpen-4 5, no-fusion-published-heads 5,
    no-fusion-lambda_1=1 5
09-confirm
    debgcd-published 10, rpc 10, no-fusion 10, no-fusion-sharpen-4 10
10-warmup
    simgcd 3, debgcd 8, rpc 8, simgcd-warm 8, debgcd-warm 8, rpc-warm 8, debgcd-warm-20 3, rpc-warm-20 3,
    debgcd-two-warm 2, rpc-two-warm 2, debgcd-two-warm-200 2, rpc-two-warm-200 2
11-warmup-sample
    simgcd 3, debgcd 5, rpc 5, simgcd-warm 5, debgcd-warm 5, rpc-warm 5
12-views
    simgcd 5, debgcd 5, rpc 5
13-screen
    simgcd 2, debgcd 2, rpc 2, debgcd-clip 2, rpc-clip 2, debgcd-mean 2, rpc-mean 2, simgcd-drop 2,
    debgcd-drop 2, rpc-drop 2, debgcd-drop-half 2, rpc-drop-half 2, memory 2, memory-1 2, project 2,
    one-rpc-1 2
14-screen-small
    simgcd 2, debgcd 2, rpc 2, rpc-mean 2, debgcd-drop 2, rpc-drop 2
15-screen-cifar
    simgcd 2, debgcd 2, rpc 2, rpc-clip 2, debgcd-drop 2, rpc-drop 2, memory 2, memory-1 2, project 2,
    one-rpc-1 2
16-screen-sample
    simgcd 5, simgcd-memax-2 5, simgcd-drop 5, debgcd 5, one-debgcd 5, rpc 5, rpc-evidence 5, one-rpc 5,
    one-rpc-1 5, one-rpc-half 5, one-rpc-evidence 5, one-rpc-posterior 5
17-values
    rpc 2, debgcd 2, one-half 2, one-1 2, one-1-waits 2, one-2-waits 2, one-4-waits 2, one-2-waits-drop 2,
    one-2-waits-free 2, memory 2, memory-1 2, project 2
18-values-cifar
    rpc 2, debgcd 2, one-half 2, one-1 2, one-1-waits 2, one-2-waits 2, one-4-waits 2, one-2-waits-drop 2,
    one-2-waits-free 2, memory 2, memory-1 2, project 2
19-values-sample
    simgcd-memax-2 5, simgcd-memax-4 5, rpc-memax-2 5, one-half 5, one-1 5, one-1-waits 5, one-2-waits 5,
    one-4-waits 5, one-2-waits-drop 5, one-2-waits-free 5
20-confirm
    simgcd 10, debgcd 10, rpc 10, rpc-table 10
21-confirm-cifar
    simgcd 10, debgcd 10, rpc 10
22-confirm-sample
    simgcd 10, rpc 10
23-warmup-embedded
    simgcd 5, simgcd-warm 5, rpc 5, rpc-warm 5
24-weight
    one-2-waits 5, one-4-waits 5, one-2 5, one-4 5
25-by-count
    one-2-waits 5, one-count 5
26-confirm-count
    simgcd 10, debgcd 10, rpc 10
27-confirm-count-sample
    simgcd 10, rpc 10
28-counted
    rpc 5, rpc-auto 5
29-counted-cifar
    rpc 5, rpc-auto 5
30-counted-sample
    rpc 10, rpc-auto 10
31-neighbours
    dccl 1, dccl-51 1, dccl-15 1
32-uno
    uno-as-run 1, uno-queue 1, uno-prior 1, uno-means 1
33-exact-pairs
    debgcd 5, rpc 5
34-two-blocks
    debgcd 2, debgcd-two 2, debgcd-two-third 2, debgcd-two-tenth 2
35-two-blocks-confirm
    debgcd 0, debgcd-two 5
36-more-views
    debgcd 5, rpc 5
37-few-known
    simgcd 10, rpc 10, no-align 10, align-tenth 10, no-new 10, no-debias 10, no-heads 10
38-few-known-confirm
    simgcd 10, rpc 10, no-new 10
39-start
    debgcd 3, debgcd-centres 3, rpc 3, rpc-centres 3
42-counted-sample
    rpc 10, rpc-auto 10
43-values-64
    rpc 3, lambda_1=0.25 3, lambda_1=1 3, lambda_2=0.15 0, adl=2 0, adl=6 0
44-align-exact
    rpc 5, lambda_1=1 2
ablation
    rpc 10, no-fusion 10, no-align 10, no-new 10
blocks
    debgcd-published 2, debgcd-compact 1, rpc 2
claim
    simgcd 3, debgcd-published 18, debgcd-compact 3, rpc 18
comparison
    kmeans 3, simgcd 5, debgcd-published 5, debgcd-compact 5, rpc 5
confirm
    debgcd-published 5, rpc 5
contrasts
    rpc 6, pairwise-features 6, samples-as-anchors 6, hard-prototypes 6, strong-labelled 6,
    strong-unlabelled 6
curves
    rpc 6, lambda_1=0.0 6, lambda_1=1.0 6, lambda_2=0.0 6, lambda_2=0.6 5, lambda_2=1.0 3, alpha=0.0 6,
    alpha=1.0 3
exact
    simgcd 3, debgcd 1, rpc 1
history
    sharpen-1 8
mechanism
    reading 0, debgcd-base 1, published-heads 1, debgcd 0, rpc 1
sample-short
    kmeans 3, simgcd 3, debgcd 3, rpc 3, reading 3
sample
    sharpen-1 5, sharpen-3 5, sharpen-6 5, no-new 5, simgcd-base 10, simgcd 10, debgcd 5,
    simgcd-base-sharpen-1 5, simgcd-base-no-fusion 10, simgcd-base-no-align 10
travel
    kmeans 3, simgcd 3, debgcd-published 10, rpc 10, no-fusion 3, no-align 3, no-new 3
peers
    kmeans 3, rs 3, rs-as-run 3, uno 3, uno-as-run 3, gcd 3, promptcal 3, dccl 3, simgcd 3, sptnet 3,
    protogcd 3, debgcd 3, rpc 3
peers-cifar
    kmeans 3, rs 3, rs-as-run 3, uno 3, uno-as-run 3, gcd 3, promptcal 3, dccl 3, simgcd 3, sptnet 3,
    protogcd 3, debgcd 3, rpc 3
"""
"""Records of each row, over its data sets. New runs of a study raise these numbers; nothing else may move them."""
NOWHERE = {"6b344e0db5d29cd2"}
"""Hashes that no study selects: RPC of revision 1 on the token cache of the sample."""


def name(path: Path) -> str:
    return path.stem


def golden() -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    study = ""
    for line in GOLDEN.strip().splitlines():
        if not line.startswith(" "):
            study, found[line] = line, {}
            continue
        for cell in line.strip(" ,").split(", "):
            row, _, count = cell.rpartition(" ")
            found[study][row] = int(count)
    return found


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return list(Records(TOP / "experiments" / "results").by_key.values())


def selected(study: Study, row: StudyRow, records: list[Record]) -> list[Record]:
    names = [collection_name(Path(dataset)) for dataset in row.datasets]
    return [record for dataset in names for record in select(study, row, dataset, records)]


@pytest.mark.parametrize("path", LIVE, ids=name)
def test_every_row_of_a_study_is_an_experiment(path: Path) -> None:
    study = read_study(path)
    made = asked_for(["--study", str(path), "--root", "data"])
    assert {experiment.label for experiment in made} == set(study.rows)
    settings = [repr((e.dataset, e.method_name, e.method, e.train, e.backbone)) for e in made if e.seed == 0]
    assert len(set(settings)) == len(settings), "two rows are the same experiment"


@pytest.mark.parametrize("path", [path for path in STUDIES if path not in LIVE], ids=name)
def test_of_a_study_of_the_past_the_rows_without_records_of_their_own_can_be_run(path: Path) -> None:
    study = read_study(path)
    live = {row.name for row in study.rows.values() if row.record is None}
    made = asked_for(["--study", str(path), "--root", "data"])
    assert {experiment.label for experiment in made} == live


def test_the_golden_table_names_every_study_and_row() -> None:
    assert {study: list(rows) for study, rows in golden().items()} == {
        path.stem: list(read_study(path).rows) for path in STUDIES
    }


@pytest.mark.parametrize("path", STUDIES, ids=name)
def test_each_row_selects_exactly_its_records(path: Path, records: list[Record]) -> None:
    study = read_study(path)
    found = {row.name: selected(study, row, records) for row in study.rows.values()}
    assert {row: len(mine) for row, mine in found.items()} == golden()[path.stem]
    for row, mine in found.items():
        plan = study.rows[row]
        assert {record.identity.method["name"] for record in mine} <= {plan.method}
        assert {record.identity.seed for record in mine} <= set(plan.seeds)
        assert len({record.key for record in mine}) == len(mine)
        epochs = plan.settings.get("train.epochs")
        for record in mine:
            if plan.method == "kmeans":  # trains nothing
                assert record.made.epochs == 0
            else:
                assert epochs is None or record.made.epochs >= epochs
    hashes = [record.identity.hash for mine in found.values() for record in mine]
    by_row = [{record.identity.hash for record in mine} for mine in found.values()]
    assert sum(map(len, by_row)) == len(set(hashes)), "two rows share a record"


def test_every_record_is_shown_somewhere(records: list[Record]) -> None:
    shown = {
        record.key
        for study in map(read_study, STUDIES)
        for row in study.rows.values()
        for record in selected(study, row, records)
    }
    assert {record.identity.hash for record in records if record.key not in shown} == NOWHERE


@pytest.mark.parametrize("path", STUDIES, ids=name)
def test_a_live_row_fits_records_of_one_hash(path: Path, records: list[Record]) -> None:
    """Whatever their seed: --reuse experiments/results finds nothing that contradicts."""
    study = read_study(path)
    for row in study.rows.values():
        for dataset in row.datasets if row.record is None else ():
            told = outline(resolve_row(study, row, dataset))
            assert len({record.identity.hash for record in records if fits(record.identity, told)}) <= 1, (
                row.name
            )


@pytest.mark.parametrize("path", STUDIES, ids=name)
def test_a_row_names_its_records_only_where_it_cannot_be_run(path: Path, records: list[Record]) -> None:
    """What this version still makes is selected by what it resolves to."""
    study = read_study(path)
    past = [row for row in study.rows.values() if row.record is not None]
    live = [row for row in study.rows.values() if row.record is None] if past else []
    shown = {record.key for row in live for record in selected(study, row, records)}
    for row in past:
        named = {record.key for record in records if record.identity.hash == row.record}
        assert named, row.name
        assert study.commit is not None, "say which commit could run it"
        assert not named & shown, row.name


def printed_commands() -> list[str]:
    """The commands below the tables of the documents."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((TOP / "docs").rglob("*.md")))
    return sorted(set(re.findall(r"Runs: `holotype (bench [^`]+)`", text)))


@pytest.mark.parametrize("command", printed_commands())
def test_the_commands_below_the_tables_are_taken(command: str) -> None:
    """Also those of studies some of whose rows belong to an earlier version."""
    words = command.replace("experiments/", f"{TOP}/experiments/").replace("DIR", "data").split()
    assert asked_for(words[1:])
