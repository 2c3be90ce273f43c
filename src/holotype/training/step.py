"""One optimiser step: features of the drawn views, losses, gradients, SGD; eager, or as a captured CUDA graph.

Where a stage is long enough, what is captured is compiled first: the hundreds of small kernels of the losses become
dozens, and trained blocks are fused. The eager step is what golden numbers bind; the compiled one equals it but for
rounding (tests/training/test_step.py). torch keeps what it compiled on disk, so that the next run has it in seconds.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor, nn

from holotype.errors import InputError
from holotype.methods.base import Batch, Method, Now, Stage
from holotype.training.batches import BatchDraw
from holotype.training.cuda_graph import CapturedStep, restored_state
from holotype.training.optim import state_of, state_tensors
from holotype.training.views import ViewSource
from holotype.utils.distributed import all_gather_rows, sum_gradients, world_size
from holotype.utils.memory import is_out_of_memory

log = logging.getLogger("holotype")

COMPILER = "inductor"
"""By torch's name."""
WORTH_COMPILING = {1: 30_000, 2: 6_000}
"""Steps of a stage from which on compiling pays, by the number of trained blocks: half a minute, where nothing is kept
from an earlier run, against a millisecond of a step."""
KEPT_STEPS = 64
"""Steps of other runs in this process that share what is compiled."""

NO_GRADIENT = "look for torch.no_grad, a detach, or a head that the loss does not use"
"""Where to look."""


def can_capture(device: torch.device) -> bool:
    """Steps of several processes talk to each other, which no graph holds."""
    return device.type == "cuda" and world_size() == 1


def pays_to_compile(stage: Stage, steps: int, blocks: int, device: torch.device) -> bool:
    """Whether so many steps of a stage, in which so many blocks learn, are worth the time of compiling them."""
    least = WORTH_COMPILING[min(max(blocks, 1), max(WORTH_COMPILING))]
    # a compiled backward pass frees what the next term would need
    fits = stage.capturable and stage.needs == "tokens" and not stage.by_term
    return can_capture(device) and fits and steps >= least


def out_of_memory(stage: Stage, batch_size: int) -> InputError:
    """What to say where a step did not fit into memory."""
    why = ", which runs images through the whole network" if stage.needs == "images" else ""
    return InputError(
        f"the stage {stage.name}{why} ran out of memory with {batch_size} images in a step; lower --train.batch-size, "
        "or choose a smaller --backbone.name."
    )


def check_terms(terms: object, method: str) -> None:
    """Raise InputError where a loss is not what the contract asks for."""
    named = terms if isinstance(terms, dict) else {}
    if not named or not all(isinstance(term, Tensor) and not term.ndim for term in named.values()):
        found = {name: getattr(term, "shape", type(term).__name__) for name, term in named.items()}
        what = ", ".join(f"{name}: {kind}" for name, kind in found.items()) or f"a {type(terms).__name__}"
        raise InputError(f"The loss of {method} must be a dict of 0-d tensors by name, and is {what}.")


class Step:
    """The step of one stage. Calling it learns from one draw and returns its loss terms, (T,) in order of `names`."""

    def __init__(
        self,
        stage: Stage,
        source: ViewSource,
        method: Method,
        modules: nn.ModuleDict,
        optimiser: torch.optim.Optimizer,
        target: Tensor,
        eager: bool = False,
        compiled: bool = False,
        *,
        clip: float = 0.0,
        side: Tensor | None = None,
    ) -> None:
        """target: (N,) class of every image, -1 = unlabelled. eager: never captured. compiled: before it is. clip:
        largest norm of the gradients, 0 = any. side: (N, S) a vector for every image.
        """
        self.clip = clip
        self.stage, self.source, self.method = stage, source, method
        self.modules, self.optimiser = modules, optimiser
        self.target = target.to(source.encoder.device)
        self.side = None if side is None else side.to(source.encoder.device, source.encoder.dtype)
        learning = [(n, p) for n, p in modules.named_parameters() if p.requires_grad]
        # the encoder sees the rows of this process, all else the whole batch
        self.local = [p for n, p in learning if n.startswith("tail.")]
        self.common = [p for n, p in learning if not n.startswith("tail.")]
        self.clock: tuple[str, ...] = ()
        self.names: tuple[str, ...] = ()
        self.sums: Tensor | None = None
        self.resumed: dict[str, Tensor] = {}
        self.checked = stage.in_turns
        self.captures = stage.capturable and not eager and can_capture(source.encoder.device)
        self.captured: CapturedStep | None = None
        self.terms = self._terms
        if compiled:
            import torch._dynamo

            torch._dynamo.config.recompile_limit = KEPT_STEPS
            self.terms = torch.compile(self._terms, backend=COMPILER, dynamic=False)

    def reset_sums(self) -> None:
        """A new epoch begins."""
        self.resumed = {}
        if self.sums is not None:
            self.sums.zero_()

    def named_sums(self) -> dict[str, Tensor]:
        """The sum of each loss term over the epoch so far."""
        return self.resumed if self.sums is None else dict(zip(self.names, self.sums, strict=True))

    def tensors(self) -> dict[str, Tensor]:
        """All that a state of the run is made of: weights and buffers, the optimiser's state, sums."""
        state = state_tensors(self.optimiser, dict(self.modules.named_parameters()))
        sums = {f"sums.{name}": value for name, value in self.named_sums().items()}
        return {**self.modules.state_dict(), **state, **sums}

    def means(self, steps: int) -> dict[str, float]:
        """The mean of each loss term over so many steps, by name: a run that is resumed at the end of an epoch has no
        other order."""
        sums = dict(sorted(self.named_sums().items()))
        values = torch.stack([*sums.values()]).tolist() if sums else []  # read at once: each read waits
        return {name: value / steps for name, value in zip(sums, values, strict=True)}

    def _begin_sums(self, names: tuple[str, ...], like: Tensor) -> None:
        """Sums in the order of the loss's terms, which only the first step tells; a saved state has another."""
        zero = torch.zeros((), device=like.device, dtype=like.dtype)
        self.names = names
        self.sums = torch.stack([self.resumed.get(name, zero).to(like) for name in names])

    def __call__(self, drawn: BatchDraw) -> Tensor:
        inputs = {**self.source.fetch(drawn.request), **drawn.tensors}
        self.clock = drawn.clock
        if self.captured and not self.captured.takes(inputs):
            self.captured = None
        if self.sums is None and self.terms != self._terms:
            self._find_terms(inputs)
        if self.captures and self.captured is None:
            self._capture(inputs)
        return self.captured(inputs) if self.captured else self._learn(inputs)

    def _capture(self, inputs: dict[str, Tensor]) -> None:
        """Capture, or fall back to eager steps for good, and say why."""
        if self.sums is None:
            self._find_terms(inputs)
        try:
            self.captured = CapturedStep(self._learn, inputs, self._state())
        except RuntimeError as error:  # a result read by the host, a shape that varies
            self.captures = False
            reason = str(error).strip().split("\n")[0]
            log.warning("This step cannot be captured as a CUDA graph (%s); it runs eagerly.", reason)

    def _find_terms(self, inputs: dict[str, Tensor]) -> None:
        """Run the loss once for its names, and undo what it changed."""
        with restored_state(self._state()):
            try:
                self._learn(inputs)
            except Exception as error:  # compilers fail in many ways: no C compiler, no Triton, ...
                if self.terms == self._terms or is_out_of_memory(error):
                    raise
                reason = f"{type(error).__name__}: {str(error).strip().split(chr(10))[0]}"
                log.warning(
                    "This step could not be compiled (%s); it runs uncompiled, which is slower.", reason
                )
                self.terms = self._terms
                self._learn(inputs)
        assert self.sums is not None
        self._begin_sums(self.names, self.sums)

    def _state(self) -> list[Tensor]:
        """Every tensor that a step changes, saved with the run or not."""
        sums = [] if self.sums is None else [self.sums]
        weights = [*self.modules.parameters(), *self.modules.buffers()]
        return [*weights, *state_of(self.optimiser), *sums]

    def _learn(self, inputs: dict[str, Tensor]) -> Tensor:
        # looked up outside, so that what is compiled does not depend on the number of images
        terms = self.terms(self.source.views(inputs), inputs, self.target[inputs["image"]])
        if not self.names:
            check_terms(terms, type(self.method).__name__)
        vector = torch.stack(list(terms.values()))
        self.optimiser.zero_grad(set_to_none=True)
        if not vector.requires_grad:
            raise InputError(f"The loss of {type(self.method).__name__} has no gradient: {NO_GRADIENT}.")
        if self.stage.by_term:
            self._combine(terms)
        else:
            vector.sum().backward()
            sum_gradients(self.local, self.common)
        if not self.checked:
            self.checked = True
            self._check_gradients()
        if self.clip:
            torch.nn.utils.clip_grad_norm_([*self.local, *self.common], self.clip)
        self.optimiser.step()
        with torch.no_grad():
            self.method.after_step()
            vector = vector.detach()
            if self.sums is None:
                self._begin_sums(tuple(terms), vector)
            assert self.sums is not None
            self.sums += vector
        return vector

    def _combine(self, terms: dict[str, Tensor]) -> None:
        """One backward pass for each term, whole over all processes; the method makes one gradient of them."""
        named = {n: p for n, p in self.modules.named_parameters() if p.requires_grad}
        gradients: dict[str, dict[str, Tensor]] = {}
        for term, value in terms.items():
            self.optimiser.zero_grad(set_to_none=True)
            value.backward(retain_graph=True)
            sum_gradients(self.local, self.common)
            gradients[term] = {n: p.grad for n, p in named.items() if p.grad is not None}
        combined = self.method.combine(gradients)
        for name, parameter in named.items():
            parameter.grad = combined.get(name)

    def _check_gradients(self) -> None:
        """Warn of what the stage trains and its first step does not reach."""
        learning = [(n, p) for n, p in self.modules.named_parameters() if p.requires_grad]
        idle = [name for name, parameter in learning if parameter.grad is None]
        if idle:
            names = ", ".join(idle[:3]) + (f" and {len(idle) - 3} more" if len(idle) > 3 else "")
            log.warning(
                f"The stage {self.stage.name} trains {names}, to which the loss gives no gradient: {NO_GRADIENT}; or "
                "leave them out of Stage.trains."
            )

    def _terms(self, views: Tensor, inputs: dict[str, Tensor], target: Tensor) -> dict[str, Tensor]:
        """The loss terms of the views (V b, ...). target: (B,) class of each image, -1 = unlabelled."""
        now: Now = dict(zip(self.clock, inputs["clock"], strict=True))
        n_views = self.stage.views.weak + self.stage.views.strong
        features = self.source.encoder.encode(self.stage, views.unflatten(0, (n_views, -1)), now)
        features = all_gather_rows(features.transpose(0, 1)).transpose(0, 1)
        return self.method.loss(self._batch(features, inputs, target), now)

    def _batch(self, features: Tensor, inputs: dict[str, Tensor], target: Tensor) -> Batch:
        image, prefix = inputs["image"], "random."
        random = {n.removeprefix(prefix): t for n, t in inputs.items() if n.startswith(prefix)}
        side = None if self.side is None else self.side[image]
        return Batch(features, target.clamp_min(0), target >= 0, image, random, self.stage.name, side)
