"""Runs beside each other: pairs by seed, Student's interval, classes, agreement; figures and tables of them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scipy.stats import ttest_rel

from holotype.errors import InputError
from holotype.runs import compare as module
from holotype.runs.experiment import resolve
from holotype.runs.run import run_experiment
from holotype.runs.run_result import load


@pytest.fixture(scope="module")
def runs(squares_folder, tiny_backbone_file, tmp_path_factory):
    """Two settings on three seeds, and one seed more of the second: (first, second) folders."""
    top = tmp_path_factory.mktemp("runs")
    folders: list[list[Path]] = [[], []]
    for number, epochs in enumerate((1, 3)):
        for seed in range(3 + number):
            settings = {"train.epochs": epochs, "train.eval_every": 1, "train.batch_size": 16}
            settings |= {"backbone.name": str(tiny_backbone_file), "seed": seed, "k": 4, "device": "cpu"}
            settings |= {"out": str(top / f"{epochs}-{seed}"), "progress": False, "cache_views": "off"}
            run_experiment(resolve("simgcd", str(squares_folder / "squares.csv"), overrides=settings))
            folders[number].append(top / f"{epochs}-{seed}")
    return folders


def test_pairs_intervals_and_classes(runs):
    found = module.compare([*runs[1], *runs[0]])
    assert found.settings == {"train.epochs": (3, 1)}
    assert found.seeds == (0, 1, 2)
    scores = [[load(run).record.scores.all * 100 for run in side[:3]] for side in (runs[1], runs[0])]
    assert found.scores.loc["All", "first"] == pytest.approx(np.mean(scores[0]))
    assert list(found.pairs["all"]) == pytest.approx(np.subtract(scores[1], scores[0]))
    expected = ttest_rel(scores[1], scores[0])
    interval = expected.confidence_interval(0.95)
    assert tuple(found.scores.loc["All", ["low", "high"]]) == pytest.approx((interval.low, interval.high))
    assert found.scores.loc["All", "p"] == pytest.approx(expected.pvalue)
    tables = [load(run).per_class.set_index("class") for run in runs[0][:3]]
    mean = 100 * np.mean([table.loc["blue", "accuracy"] for table in tables])
    assert found.classes.loc["blue", "second"] == pytest.approx(mean)
    assert found.classes.difference.is_monotonic_increasing


def test_agreement_does_not_depend_on_names_of_categories(runs, tmp_path):
    run, other = load(runs[0][0]), load(runs[0][0])
    names = {id: f"{id}-x" for id in run.images.category_id.unique()}
    other.images = run.images.assign(category_id=run.images.category_id.map(names))
    other.images = other.images.sample(frac=1, random_state=0)
    assert module.placed_alike(run, other) == 1
    free = np.flatnonzero(other.images.label == "")
    column = other.images.columns.get_loc("category_id")
    other.images.iloc[free[:12], column] = "another-x"
    assert module.placed_alike(run, other) < 1


def test_the_command_and_what_it_refuses(holotype, runs, tiny):
    outcome = holotype("compare", runs[0][0], runs[0][1], *runs[1])
    assert outcome.code == 0
    assert "train.epochs: 1 -> 3" in outcome.out
    assert "2 pairs" in outcome.out
    assert "blue" in outcome.out
    one = holotype("compare", runs[0][0], runs[1][0])
    assert "One pair has no interval" in one.out
    for words, said in (((runs[0]), "have 1 settings"), (([runs[0][0], runs[1][3]]), "No seed is in both")):
        refused = holotype("compare", *words)
        assert (refused.code, said in refused.err) == (2, True)
    wrong = [runs[0][0].parent, runs[1][0]]
    for folders, said in ((wrong, "holds no run"), (str(runs[0][0]), "list of them")):
        with pytest.raises(InputError, match=said):
            module.compare(folders)
    with pytest.raises(InputError, match="is a file"):
        load(runs[0][0] / "scores.json")


def test_runs_of_other_images_or_labels_are_not_compared(runs, squares_folder, tiny, tmp_path):
    lines = (squares_folder / "squares.csv").read_text().splitlines()
    rows = [f"{squares_folder}/{line}" for line in lines[1:]]
    bare = [row.replace(",red,red", ",,red") if n % 4 else row for n, row in enumerate(rows)]
    for name, kept in {"fewer": rows[:-4], "bare": bare}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "squares.csv").write_text("\n".join([lines[0], *kept]))
        other = tiny("kmeans", name + "-run", dataset=tmp_path / name / "squares.csv")
        run_experiment(other)
        with pytest.raises(InputError, match="two data sets called squares"):
            module.compare([runs[0][0], other.folder])


@pytest.fixture
def drawn(monkeypatch) -> list:
    """The figures that are saved."""
    figure, seen = pytest.importorskip("matplotlib.figure"), []
    save = lambda self, path, **_: (seen.append(self), path.write_bytes(b"x"))  # noqa: E731
    monkeypatch.setattr(figure.Figure, "savefig", save)
    return seen


@pytest.mark.parametrize(("number", "panels"), [(1, 4), (5, 3)])
def test_a_plot_has_its_panels(holotype, runs, tmp_path, drawn, number, panels):
    out = tmp_path / "plot.svg"
    outcome = holotype("plot", *[*runs[1], *runs[0]][:number], "--out", out)
    assert (outcome.code, outcome.out.strip(), out.is_file()) == (0, str(out), True)
    assert len(drawn[0].axes) == panels
    losses, scores = drawn[0].axes[:2]
    assert {len(line.get_xdata()) for line in losses.lines} <= {1, 3}
    record = load(runs[1][0]).record
    assert scores.lines[0].get_ydata()[-1] == pytest.approx(100 * record.scores.all)
    assert list(scores.lines[0].get_xdata()) == [1, 2, 3]


def test_a_plot_of_a_run_without_scores_on_the_way_leaves_them_out(holotype, runs, tmp_path, drawn):
    assert holotype("plot", runs[0][0], "--out", tmp_path / "plot.svg").code == 0
    assert [axes.get_title() for axes in drawn[0].axes][1:2] == ["Scores over seeds"]


def test_a_plot_is_an_image(holotype, runs, tmp_path):
    pytest.importorskip("matplotlib")
    assert holotype("plot", runs[0][0], "--out", tmp_path / "a.png").code == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    refused = holotype("plot", runs[0][0], "--out", tmp_path / "a.txt")
    assert (refused.code, "must end in .png" in refused.err) == (2, True)


def test_features_are_a_table(holotype, runs, tmp_path):
    out = tmp_path / "features.parquet"
    assert holotype("features", runs[0][0], "--logits", "--out", out).code == 0
    table = pq.read_table(out).to_pandas()
    run = load(runs[0][0])
    assert np.stack(table.vector) == pytest.approx(run.features)
    assert np.stack(table.logits) == pytest.approx(run.logits)
    assert list(table.path) == list(run.images.path)
    assert isinstance(table, pd.DataFrame)
