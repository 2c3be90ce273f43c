"""One optimiser step: features of the drawn views, losses, gradients, SGD; eager, or as a captured CUDA graph."""

from __future__ import annotations

import logging

import torch
from torch import Tensor, nn

from holotype.errors import InputError
from holotype.methods.base import Batch, Method, Now, Stage
from holotype.training.batches import BatchDraw
from holotype.training.cuda_graph import CapturedStep, restored_state
from holotype.training.optim import momentum_of, momentum_tensors
from holotype.training.views import ViewSource
from holotype.utils.distributed import all_gather_rows, sum_gradients, world_size

log = logging.getLogger("holotype")

NO_GRADIENT = "look for torch.no_grad, a detach, or a head that the loss does not use"
"""Where to look."""


def can_capture(device: torch.device) -> bool:
    """Steps of several processes talk to each other, which no graph holds."""
    return device.type == "cuda" and world_size() == 1


def out_of_memory(stage: Stage, batch_size: int) -> InputError:
    """What to say where a step did not fit into memory."""
    why = ", which runs images through the whole network" if stage.needs == "images" else ""
    return InputError(
        f"the stage {stage.name}{why} ran out of memory with {batch_size} images in a step; lower --train.batch-size, "
        "or choose a smaller --backbone.name."
    )


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
    ) -> None:
        """target: (N,) class of every image, -1 = unlabelled. eager: never captured."""
        self.stage, self.source, self.method = stage, source, method
        self.modules, self.optimiser = modules, optimiser
        self.target = target.to(source.encoder.device)
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

    def reset_sums(self) -> None:
        """A new epoch begins."""
        self.resumed = {}
        if self.sums is not None:
            self.sums.zero_()

    def named_sums(self) -> dict[str, Tensor]:
        """The sum of each loss term over the epoch so far."""
        return self.resumed if self.sums is None else dict(zip(self.names, self.sums, strict=True))

    def tensors(self) -> dict[str, Tensor]:
        """All that a state of the run is made of: weights and buffers, momentum, sums."""
        momentum = momentum_tensors(self.optimiser, dict(self.modules.named_parameters()))
        sums = {f"sums.{name}": value for name, value in self.named_sums().items()}
        return {**self.modules.state_dict(), **momentum, **sums}

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
            self._learn(inputs)
        assert self.sums is not None
        self._begin_sums(self.names, self.sums)

    def _state(self) -> list[Tensor]:
        """Every tensor that a step changes, saved with the run or not."""
        sums = [] if self.sums is None else [self.sums]
        weights = [*self.modules.parameters(), *self.modules.buffers()]
        return [*weights, *momentum_of(self.optimiser), *sums]

    def _learn(self, inputs: dict[str, Tensor]) -> Tensor:
        views = self.source.views(inputs)
        now: Now = dict(zip(self.clock, inputs["clock"], strict=True))
        n_views = self.stage.views.weak + self.stage.views.strong
        features = self.source.encoder.encode(self.stage, views.unflatten(0, (n_views, -1)), now)
        features = all_gather_rows(features.transpose(0, 1)).transpose(0, 1)
        terms = self.method.loss(self._batch(features, inputs), now)
        vector = torch.stack(list(terms.values()))
        self.optimiser.zero_grad(set_to_none=True)
        if not vector.requires_grad:
            raise InputError(f"The loss of {type(self.method).__name__} has no gradient: {NO_GRADIENT}.")
        vector.sum().backward()
        if not self.checked:
            self.checked = True
            self._check_gradients()
        sum_gradients(self.local, self.common)
        self.optimiser.step()
        with torch.no_grad():
            self.method.after_step()
            vector = vector.detach()
            if self.sums is None:
                self._begin_sums(tuple(terms), vector)
            assert self.sums is not None
            self.sums += vector
        return vector

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

    def _batch(self, features: Tensor, inputs: dict[str, Tensor]) -> Batch:
        image, prefix = inputs["image"], "random."
        target = self.target[image]
        random = {n.removeprefix(prefix): t for n, t in inputs.items() if n.startswith(prefix)}
        return Batch(features, target.clamp_min(0), target >= 0, image, random, self.stage.name)
