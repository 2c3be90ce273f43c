"""`train` from Python: the same run as from the command line, and one sentence for what cannot be used."""

import pytest

from holotype.errors import InputError
from holotype.runs import run
from holotype.runs.resolve import resolve
from holotype.runs.run import train
from holotype.utils.serialization import read_json


def test_a_run_from_python_is_that_of_the_command_line(
    holotype, squares_folder, tiny_backbone_file, tiny_flags, tmp_path
):
    out, other = tmp_path / "python", tmp_path / "words"
    record = train(
        "simgcd",
        squares_folder / "squares.csv",
        k=4,
        device="cpu",
        progress=False,
        out=out,
        settings={"train.epochs": 1, "train.batch-size": 16, "backbone.name": tiny_backbone_file},
    )
    assert read_json(out / "scores.json") == record.as_dict()
    assert holotype("train", "simgcd", squares_folder / "squares.csv", *tiny_flags, "--out", other).code == 0
    for name in ("model.safetensors", "assignments.csv", "identity.json"):
        assert (out / name).read_bytes() == (other / name).read_bytes()


def test_settings_arrive(monkeypatch):
    monkeypatch.setattr(run, "run_experiment", lambda experiment: experiment)
    found = train("rpc", "fashion-sample", preset="reading", seed=3, settings={"method.lambda_2": 0.1})
    assert found == resolve("rpc", "fashion-sample", "reading", {"seed": 3, "method.lambda_2": 0.1})


@pytest.mark.parametrize(
    ("words", "named", "sentence"),
    [
        (("rcp", "fashion-sample"), {}, "no method 'rcp'"),
        (("rpc", "fashion-simple"), {}, "did you mean fashion-sample"),
        (("rpc", "fashion-sample"), {"epochs": 3}, "'epochs' is unknown; did you mean train.epochs"),
        (("rpc", "fashion-sample"), {"seed": 0.5}, "seed must be a whole number, not 0.5"),
        (("rpc", "fashion-sample"), {"seed": 1, "settings": {"seed": 2}}, "seed is given twice"),
        (("rpc", "fashion-sample"), {"device": "tpu"}, "device must be auto, cpu"),
    ],
)
def test_what_cannot_be_used(words, named, sentence):
    with pytest.raises(InputError, match=sentence):
        train(*words, **named)


def test_a_device_that_is_not_there_is_refused_before_data_are_read(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("holotype.runs.resources.load_data", lambda *_: pytest.fail("data were read"))
    with pytest.raises(InputError, match="--device cuda:1 is not to be had on this machine"):
        train("kmeans", "fashion-sample", device="cuda:1")


def test_settings_have_names() -> None:
    with pytest.raises(InputError, match="give them by name"):
        train("rpc", "fashion-sample", settings=[1])
