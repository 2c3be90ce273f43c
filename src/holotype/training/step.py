"""One optimiser step: features of the drawn views, losses, gradients, SGD; eager, or captured as a CUDA graph."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from holotype.data.sampling import keyed_generator
from holotype.machine.processes import gather_rows, sum_gradients
from holotype.methods.base import Batch, Method, Stage, Views
from holotype.training.capture import Captured, undone
from holotype.training.optimiser import momentum_of, momentum_tensors
from holotype.training.sources import Key, Source

log = logging.getLogger("holotype")

BLOCK = 16
"""Steps whose random numbers are drawn and sent to the device together."""
AHEAD = 3
"""Steps announced to the source before they are fetched."""


@dataclass(frozen=True)
class Drawn:
    """Everything random about one step, drawn before it."""

    request: Any
    """The views, as the source knows them."""
    tensors: dict[str, Tensor]
    """`image` (B,) rows of the table, and `random.NAME` for each of the method's draws; on the device."""


def draw_steps(
    rows: Tensor, first: int, source: Source, method: Method, views: Views, key: Key
) -> Iterator[Drawn]:
    """The steps of an epoch from step `first` on. rows: (steps, B) of the whole epoch, on the CPU."""
    waiting: list[Drawn] = []
    for drawn in _draw_blocks(rows, first, source, method, views, key):
        source.expect(drawn.request)
        waiting.append(drawn)
        if len(waiting) > AHEAD:
            yield waiting.pop(0)
    yield from waiting


def _draw_blocks(
    rows: Tensor, first: int, source: Source, method: Method, views: Views, key: Key
) -> Iterator[Drawn]:
    device, dtype = source.encoder.device, source.encoder.dtype
    for start in range(first - first % BLOCK, len(rows), BLOCK):
        part = rows[start : start + BLOCK]
        requests = source.draw(part, views, (*key, start))
        tensors = {"image": _send(part, device)}
        for name, shape in method.draws(rows.shape[1]).items():
            random = torch.rand(len(part), *shape, generator=keyed_generator(*key, start, name))
            tensors[f"random.{name}"] = _send(random.to(dtype), device)
        for step in range(max(first - start, 0), len(part)):
            yield Drawn(requests[step], {name: block[step] for name, block in tensors.items()})


def _send(host: Tensor, device: torch.device) -> Tensor:
    """To the device without waiting for it."""
    if device.type != "cuda":
        return host.to(device)
    return host.contiguous().pin_memory().to(device, non_blocking=True)


class Step:
    """The step of one stage. Calling it learns from one draw and returns its loss terms, (T,) in order of `names`."""

    def __init__(
        self,
        stage: Stage,
        source: Source,
        method: Method,
        modules: nn.ModuleDict,
        optimiser: torch.optim.Optimizer,
        target: Tensor,
        own: str,
        captures: bool,
    ) -> None:
        """target: (N,) class of every image, -1 = unlabelled. own: prefix of the parameters that each process
        learns from its own rows; the others see the whole batch."""
        self.stage, self.source, self.method = stage, source, method
        self.modules, self.optimiser = modules, optimiser
        self.target = target.to(source.encoder.device)
        learning = [(n, p) for n, p in modules.named_parameters() if p.requires_grad]
        self.local = [p for n, p in learning if n.startswith(own)]
        self.common = [p for n, p in learning if not n.startswith(own)]
        self.now: dict[str, Tensor] = {}
        self.names: tuple[str, ...] = ()
        self.sums: Tensor | None = None
        self.resumed: dict[str, Tensor] = {}
        self.captures = captures
        self.captured: Captured | None = None

    def set_clock(self, values: dict[str, float]) -> None:
        """What changes with time, written into the tensors that a captured step reads."""
        device, dtype = self.source.encoder.device, self.source.encoder.dtype
        for name, value in values.items():
            if name not in self.now:
                self.now[name] = torch.zeros((), device=device, dtype=dtype)
            self.now[name].fill_(value)

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

    def _begin_sums(self, names: tuple[str, ...], like: Tensor) -> None:
        """Sums in the order of the loss's terms, which only the first step tells; a saved state has another."""
        zero = torch.zeros((), device=like.device, dtype=like.dtype)
        self.names = names
        self.sums = torch.stack([self.resumed.get(name, zero).to(like) for name in names])

    def __call__(self, drawn: Drawn) -> Tensor:
        inputs = {**self.source.fetch(drawn.request), **drawn.tensors}
        if self.captures and self.captured is None:
            self._capture(inputs)
        return self.captured(inputs) if self.captured else self._learn(inputs)

    def _capture(self, inputs: dict[str, Tensor]) -> None:
        """Capture, or fall back to eager steps for good, and say why."""
        if self.sums is None:
            self._find_terms(inputs)
        try:
            self.captured = Captured(self._learn, inputs, self._state())
        except (
            RuntimeError
        ) as error:  # what cannot be captured: a result read by the host, a shape that varies
            self.captures = False
            reason = str(error).strip().split("\n")[0]
            log.warning("This step cannot be captured as a CUDA graph (%s); it runs eagerly.", reason)

    def _find_terms(self, inputs: dict[str, Tensor]) -> None:
        """Run the loss once for its names, and undo what it changed."""
        with undone(self._state()):
            self._learn(inputs)
        assert self.sums is not None
        self._begin_sums(self.names, self.sums)

    def _state(self) -> list[Tensor]:
        """Every tensor that a step changes."""
        sums = [] if self.sums is None else [self.sums]
        return [*self.modules.state_dict().values(), *momentum_of(self.optimiser), *sums]

    def _learn(self, inputs: dict[str, Tensor]) -> Tensor:
        n_views = self.stage.views.weak + self.stage.views.strong
        features = self.source.encode(inputs).unflatten(0, (n_views, -1))
        features = gather_rows(features.transpose(0, 1)).transpose(0, 1)
        terms = self.method.loss(self._batch(features, inputs), self.now)
        vector = torch.stack(list(terms.values()))
        self.optimiser.zero_grad(set_to_none=True)
        vector.sum().backward()
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

    def _batch(self, features: Tensor, inputs: dict[str, Tensor]) -> Batch:
        target = self.target[inputs["image"]]
        prefix = "random."
        return Batch(
            features=features,
            label=target.clamp_min(0),
            labelled=target >= 0,
            image=inputs["image"],
            random={n.removeprefix(prefix): t for n, t in inputs.items() if n.startswith(prefix)},
        )
