"""The step: sums of terms, and what is never captured."""

import dataclasses
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from holotype.errors import InputError
from holotype.methods.base import Stage
from holotype.methods.simgcd import SimGCD
from holotype.training import step as module
from holotype.training.cuda_graph import WARM_UP, CapturedStep, restored_state
from holotype.training.step import Step

from .conftest import assert_equal_weights, fit_and_watch, stop_and_resume
from .stubs import TRAINED, Classifies, OwnEncoder


def test_a_cpu_a_wish_and_a_stage_that_says_so_keep_steps_eager(world, monkeypatch):
    def captures(loop, eager=False, **changes):
        stage = dataclasses.replace(loop.stages[0], **changes)
        modules, optimiser = loop.modules, torch.optim.SGD(loop.learnable.values())
        target = loop.rows.target
        return Step(stage, loop.source, loop.method, modules, optimiser, target, eager).captures

    loop, own = world.loop("simgcd"), world.loop(OwnEncoder)
    assert not captures(loop)
    monkeypatch.setattr(module, "can_capture", lambda device: True)
    assert captures(loop)
    assert captures(own)  # an encoder of images, too
    assert not captures(loop, eager=True)
    assert not captures(loop, capturable=False)


class Rehearsed:
    """A capture as far as it goes without a GPU: the runs that it begins with are undone, then each step is run."""

    def __init__(self, function, inputs, state):
        self.function, self.sizes = function, {name: value.shape for name, value in inputs.items()}
        with restored_state(state):
            for _ in range(WARM_UP + 1):
                function(inputs)

    def takes(self, inputs):
        return {name: value.shape for name, value in inputs.items()} == self.sizes

    def __call__(self, inputs):
        return self.function(inputs)


def everything(loop):
    """All that a step may change, also what no state of the run holds."""
    named = {**dict(loop.modules.named_parameters()), **dict(loop.modules.named_buffers())}
    return {**named, **loop.current.step.tensors()}


@pytest.mark.parametrize("name", TRAINED)
def test_what_a_capture_tries_first_leaves_no_trace(world, monkeypatch, caplog, name):
    """Of any method, in any of its stages: weights, buffers, momentum and sums are those of a run without captures."""
    plain = world.loop(TRAINED[name], epochs=2)
    assert not any(fit_and_watch(plain).values())
    monkeypatch.setattr(module, "can_capture", lambda device: True)
    monkeypatch.setattr(module, "CapturedStep", Rehearsed)
    rehearsed = world.loop(TRAINED[name], epochs=2)
    assert fit_and_watch(rehearsed) == {stage.name: stage.capturable for stage in rehearsed.stages}
    assert_equal_weights(everything(plain), everything(rehearsed))
    assert "no gradient" not in caplog.text  # whatever learns has one


@pytest.mark.parametrize(("name", "blocks"), [("simgcd", 1), ("rpc", 2)])
def test_a_compiled_step_is_the_eager_one(world, monkeypatch, name, blocks):
    """As the compiler sees it, in eager kernels: nobody needs a C compiler for the tests."""
    plain = world.loop(name, epochs=2, blocks=blocks)
    fit_and_watch(plain)
    monkeypatch.setattr(module, "COMPILER", "aot_eager")
    monkeypatch.setattr("holotype.training.loop.pays_to_compile", lambda *_: True)
    compiled = world.loop(name, epochs=2, blocks=blocks)
    fit_and_watch(compiled)
    step = compiled.current.step
    assert step.terms != step._terms
    assert_equal_weights(everything(plain), everything(compiled), 1e-5)


def test_a_step_that_cannot_be_compiled_is_not(world, monkeypatch, caplog):
    def refuses(graph, inputs):
        raise RuntimeError("no C compiler here")

    plain = world.loop("simgcd", epochs=2)
    fit_and_watch(plain)
    torch.compiler.reset()
    monkeypatch.setattr(module, "COMPILER", refuses)
    monkeypatch.setattr("holotype.training.loop.pays_to_compile", lambda *_: True)
    fallen = world.loop("simgcd", epochs=2)
    fit_and_watch(fallen)
    assert "could not be compiled" in caplog.text
    assert_equal_weights(everything(plain), everything(fallen))


@pytest.mark.parametrize(("blocks", "least"), [(1, 30_000), (2, 6_000), (5, 6_000)])
def test_long_stages_on_tokens_are_compiled_on_a_gpu(monkeypatch, blocks, least):
    stage, device = Stage(), torch.device("cpu")
    assert not module.pays_to_compile(stage, least, blocks, device)
    monkeypatch.setattr(module, "can_capture", lambda device: True)
    assert module.pays_to_compile(stage, least, blocks, device)
    assert not module.pays_to_compile(stage, least - 1, blocks, device)
    assert not module.pays_to_compile(Stage(needs="images"), least, blocks, device)


class CountsInPassing(SimGCD):
    """Changes a buffer that is not saved with the run."""

    def __init__(self, config, task):
        super().__init__(config, task)
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def loss(self, batch, now):
        self.seen += 1
        return super().loss(batch, now)


def test_a_buffer_that_is_not_saved_is_put_back_and_captures_are_told_by_stage(world, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "can_capture", lambda device: True)
    monkeypatch.setattr(module, "CapturedStep", Rehearsed)
    loop = world.loop(CountsInPassing, epochs=2)
    loop.fit()
    assert int(loop.method.seen) == 2 * loop.steps
    # the last stage of SPTNet is never captured; that the first one was is known after it, and after a stop
    loop = stop_and_resume(partial(world.loop, "sptnet"), tmp_path, 7)
    assert loop.captured == {"simgcd": True, "prompts": False}


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


class ForgetsTheGradient(Classifies):
    """The tail runs without gradient, and a head is never used."""

    def __init__(self, config, task):
        super().__init__(config, task)
        self.unused = torch.nn.Linear(task.dim, 2)

    def encode(self, stage, inputs, now):
        with torch.no_grad():
            return super().encode(stage, inputs, now)

    def loss(self, batch, now):
        return {"cls": self.cross_entropy(batch, batch.features)}


class HasNoGradient(ForgetsTheGradient):
    def loss(self, batch, now):
        return {name: term.detach() for name, term in super().loss(batch, now).items()}


@pytest.mark.parametrize("captures", [False, True])
def test_what_gets_no_gradient_is_named_once(world, monkeypatch, caplog, captures):
    monkeypatch.setattr(module, "can_capture", lambda device: captures)
    monkeypatch.setattr(module, "CapturedStep", Rehearsed)
    world.loop(ForgetsTheGradient, epochs=2).fit()
    (line,) = [record.getMessage() for record in caplog.records if "no gradient" in record.getMessage()]
    assert "tail.blocks" in line
    assert "classifier" not in line
    with pytest.raises(InputError, match="HasNoGradient has no gradient"):
        world.loop(HasNoGradient).fit()
