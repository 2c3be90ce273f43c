"""A step is captured on the GPU that its tensors lie on, which need not be the first. These tests need none."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from holotype.training.cuda_graph import CapturedStep


class Cuda:
    """Two GPUs in name, of which the first is the current one; notes where a stream is made and a graph begins."""

    def __init__(self) -> None:
        self.current, self.noted = 0, []

    @contextmanager
    def device(self, device):
        before, self.current = self.current, torch.device(device).index
        yield
        self.current = before

    def stream(self, device=None):
        self.noted.append(("stream", self.current if device is None else torch.device(device).index))
        return SimpleNamespace(wait_stream=lambda other: None)

    def graph(self, *_, **__):
        self.noted.append(("graph", self.current))
        return nullcontext()

    def synchronize(self, device=None):
        self.noted.append(("waited", self.current if device is None else torch.device(device).index))


def test_a_step_is_captured_on_the_gpu_of_its_inputs(monkeypatch) -> None:
    cuda = Cuda()
    for name, stands_in in {
        "device": cuda.device,
        "Stream": cuda.stream,
        "CUDAGraph": SimpleNamespace,
        "graph": cuda.graph,
        "stream": lambda stream: nullcontext(),
        "current_stream": lambda device=None: SimpleNamespace(wait_stream=lambda other: None),
        "synchronize": cuda.synchronize,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stands_in)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
    with FakeTensorMode():
        CapturedStep(lambda inputs: inputs["x"] + 1, {"x": torch.zeros(3, device="cuda:1")}, [])
    assert {what for what, _ in cuda.noted} == {"stream", "graph", "waited"}
    assert {number for _, number in cuda.noted} == {1}
    assert cuda.current == 0
