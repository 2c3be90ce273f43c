"""Devices and precision are chosen openly."""

import pytest
import torch

from holotype.errors import InputError
from holotype.runs.experiment import default_experiment
from holotype.utils.device import Device, pick_device


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
        assert experiment.precision == expected
    experiment.train.precision = "fp64"
    assert experiment.precision == "fp64"


def test_double_precision_is_refused_where_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(InputError, match="mps has no double precision"):
        Device.on("mps", "fp64")
    assert Device.on("mps").precision == "fp32"


def test_one_gpu_of_several_can_be_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("cuda:1") == "cuda:1"
    with pytest.raises(InputError, match="which has 2 GPUs, counted from 0"):
        pick_device("cuda:2")
    for name in ("gpu", "cpu:1", "cuda:x", "cuda:-1"):
        with pytest.raises(InputError, match=f"--device {name} is unknown"):
            pick_device(name)
