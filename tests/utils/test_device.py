"""Devices and precision are chosen openly."""

import pytest
import torch

from holotype.errors import InputError
from holotype.utils import device as module
from holotype.utils.device import Device, pick_device


@pytest.fixture
def machine(monkeypatch):
    def has(cuda: int = 0, mps: bool = False) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return has


def test_a_device_that_is_not_there_is_refused_and_precision_is_bf16_on_cuda_alone(machine):
    machine()
    assert pick_device("auto") == pick_device("cpu") == "cpu"
    for name in ("cuda", "cuda:0", "mps"):
        with pytest.raises(InputError, match=f"--device {name} is not available"):
            pick_device(name)
    machine(cuda=2)
    assert (pick_device("auto"), pick_device("cuda:1")) == ("cuda", "cuda:1")
    with pytest.raises(InputError, match="where 2 GPUs are"):
        pick_device("cuda:2")
    for name in ("gpu", "cpu:1", "cuda:x", "cuda:-1"):
        with pytest.raises(InputError, match=f"--device {name} is unknown"):
            pick_device(name)
    machine(cuda=1)
    assert (Device.on().precision, Device.on().trunk_dtype) == ("bf16", torch.bfloat16)
    machine(mps=True)
    assert (Device.on().precision, Device.on("mps").precision) == ("fp32", "fp32")
    with pytest.raises(InputError, match="mps has no double precision"):
        Device.on("mps", "fp64")
    assert Device.on("cpu", "fp64").trunk_dtype == torch.float64


def test_a_line_says_where_threads_fight_over_processors(monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    monkeypatch.setattr(module, "_all_cpus", lambda: 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    for busy, said in ((1.9, True), (0.1, False)):
        monkeypatch.setattr(module, "busy_elsewhere", lambda busy=busy: busy)
        assert ("OMP_NUM_THREADS=1" in module.threads_remark(cpu)) == said
    monkeypatch.setattr(module, "busy_elsewhere", lambda: 1.9)
    assert module.threads_remark(gpu) == ""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert module.threads_remark(cpu) == ""
