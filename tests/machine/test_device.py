"""Devices and precision are chosen openly."""

import pytest
import torch

from holotype.errors import InputError
from holotype.machine.device import PRECISIONS, pick_device, pick_precision
from holotype.runs.experiment import default_experiment


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert pick_device("auto") == pick_device("cpu") == "cpu"
    for name in ("cuda", "mps"):
        with pytest.raises(InputError, match=f"--device {name} is not to be had"):
            pick_device(name)


def test_auto_precision_is_bf16_on_cuda_alone(monkeypatch):
    experiment = default_experiment("simgcd", "cub")
    for cuda, expected in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=cuda: there)
        assert pick_precision(experiment) == expected
    experiment.train.precision = "fp64"
    assert pick_precision(experiment) == "fp64"
    assert expected in PRECISIONS
