"""The studies in experiments/ can be run, and their results are those of their rows."""

from pathlib import Path

import pytest

from holotype.cli.bench import make_experiments, make_parser
from holotype.runs.results import read_results
from holotype.runs.study import read_study

TOP = Path(__file__).parents[2]
STUDIES = sorted((TOP / "experiments").glob("*.yaml"))
LIVE = [path for path in STUDIES if read_study(path).commit is None]


def name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", LIVE, ids=name)
def test_every_row_of_a_study_is_an_experiment(path: Path) -> None:
    study = read_study(path)
    made = make_experiments(make_parser().parse_args(["--study", str(path), "--root", "data"]))
    assert {experiment.label for experiment in made} == set(study.rows)
    settings = [repr((e.dataset, e.method_name, e.method, e.train, e.backbone)) for e in made if e.seed == 0]
    assert len(set(settings)) == len(settings), "two rows are the same experiment"


@pytest.mark.parametrize("path", STUDIES, ids=name)
def test_results_belong_to_rows(path: Path) -> None:
    folder = TOP / "results" / path.stem
    if path.stem == "mechanism" or not folder.is_dir():
        pytest.skip("the study has no scored results yet")
    study = read_study(path)
    for file, record in read_results(folder).items():
        row = study.rows[record["variant"]]
        assert record["method"] == row.method, file
        assert record["seed"] in row.seeds, file
        epochs = row.settings.get("train.epochs")
        if row.method == "kmeans":  # trains nothing
            assert record["epochs"] == 0, file
        else:
            assert epochs is None or record["epochs"] >= epochs, file
