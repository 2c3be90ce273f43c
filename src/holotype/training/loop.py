"""The training loop: the only one. It knows stages, steps and state, and no method by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holotype.data.sampling import SAMPLERS, keyed_generator
from holotype.data.store import ImageStore
from holotype.data.table import Table
from holotype.machine.device import Compute
from holotype.machine.processes import any_process, rank, world_size
from holotype.methods.base import Method, Prediction, Stage
from holotype.methods.schedule import cosine_lr
from holotype.models.backbone import Backbone
from holotype.models.cache import TokenCache
from holotype.training.config import TrainConfig
from holotype.training.encode import place
from holotype.training.guard import Guard, LeftCourse
from holotype.training.journal import Journal, Position, State
from holotype.training.optimiser import build_sgd, restore_momentum, set_rate
from holotype.training.progress import StopRequest, TrainingBar, score_line
from holotype.training.rows import index_rows
from holotype.training.sources import make_source, table_features
from holotype.training.step import Drawn, Step, draw_steps

Score = Callable[[Prediction], dict[str, Any]]


class Loop:
    """Trains one method on one table. `fit` resumes by itself from the run folder."""

    def __init__(
        self,
        config: TrainConfig,
        method: Method,
        backbone: Backbone,
        store: ImageStore,
        table: Table,
        compute: Compute,
        *,
        seed: int,
        folder: Path | None = None,
        score: Score | None = None,
        progress: bool = False,
        cache: TokenCache | None = None,
        identity: str = "",
    ) -> None:
        """cache: draw views from it (a method that owns its encoder cannot); without one they are cut anew.

        identity: digest of what the run is, kept with its states.
        """
        self.config, self.table, self.compute, self.seed = config, table, compute, seed
        self.source = make_source(config, method, backbone, store, compute, cache)
        self.device = compute.device
        self.method = method.to(self.device, self.source.encoder.dtype)
        self.score, self.progress = score, progress
        self.modules = nn.ModuleDict({"tail": self.source.encoder.tail, "method": self.method})
        self.learnable = {n: p for n, p in self.modules.named_parameters() if p.requires_grad}
        self.initial = {name: parameter.detach().clone() for name, parameter in self.learnable.items()}
        self.position = Position()
        self.started = self.last_save = time.monotonic()
        self.step: Step | None = None
        self.coming: Iterator[Drawn] | None = None
        self.journal, self.guard = Journal(folder, identity), Guard(config.warmup)
        self.features: Tensor | None = None
        """(N, D) of every image after the last step, zeros for those that cannot be read; None before."""
        self.on_epoch: Callable[[int], None] | None = None
        """Called after each epoch of a stage with the number of those done, for whoever wants to look on."""
        # a method that only clusters has no batches
        self.rows = index_rows(table, config.batch_size if method.stages() else world_size())
        self.target, self.steps = self.rows.target, self.rows.steps

    @property
    def mode(self) -> str:
        """`exact`, or `cached 16+8`."""
        return self.source.mode

    @property
    def captured(self) -> bool:
        """Whether the steps are replayed as a CUDA graph."""
        return self.step is not None and self.step.captured is not None

    @property
    def total_steps(self) -> int:
        return self.steps * sum(self.epochs(stage) for stage in self.method.stages())

    # -- the way through the stages ---------------------------------------------------------------

    def fit(self) -> Prediction:
        """Train to the end and place every image; resumes where a state is found."""
        with StopRequest() as stop:
            training = self.training(stop)
            while True:
                try:
                    next(training)
                except StopIteration as end:
                    placed: Prediction = end.value
                    return placed

    def training(
        self, stop: StopRequest, bar: TrainingBar | None = None
    ) -> Generator[None, None, Prediction]:
        """`fit` in pieces: yields after each step, so that several loops can take turns.

        bar: one that several loops share; without it each stage has its own.
        """
        self.started = self.last_save = time.monotonic()
        tensors = self._resume()
        stages = self.method.stages()
        while self.position.stage < len(stages):
            stage = stages[self.position.stage]
            try:
                yield from self._run_stage(stage, tensors, stop, bar)
                tensors = {}
                self.position = Position(stage=self.position.stage + 1, counter=self.position.counter)
            except LeftCourse as left:
                sound = self.guard.go_back(left, stage.name, self.position, self.lr(stage))
                tensors, self.coming = self._load(sound), None
                self.source.close()
                self.journal.restart(sound, self.guard.restarts)
        return self._finish()

    def _run_stage(
        self, stage: Stage, tensors: dict[str, Tensor], stop: StopRequest, shared: TrainingBar | None
    ) -> Generator[None, None, None]:
        epochs = self.epochs(stage)
        optimiser = self._begin_stage(stage, tensors)
        bar = shared or TrainingBar(self.progress and rank() == 0, stage.name, epochs * self.steps)
        with nullcontext() if shared else bar:
            within = self.position.epoch * self.steps + self.position.step
            bar.advance_to(self.position.counter if shared else within)
            for epoch in range(self.position.epoch, epochs):
                self.position.epoch = epoch
                yield from self._run_epoch(stage, epoch, epochs, optimiser, stop, bar)
                self.position = Position(self.position.stage, epoch + 1, 0, self.position.counter)
                if self.on_epoch:
                    self.on_epoch(epoch + 1)
            self._save()

    def _begin_stage(self, stage: Stage, tensors: dict[str, Tensor]) -> torch.optim.Optimizer:
        """Build the stage's optimiser with the momentum of the state, or refresh what starts anew; and its step."""
        c = self.config
        optimiser = build_sgd(self.learnable, stage.trains, self.lr(stage), c.momentum, c.weight_decay)
        restore_momentum(optimiser, self.learnable, tensors)
        at_start = self.position.epoch == 0 and self.position.step == 0 and not self.position.begun
        for name, parameter in self.learnable.items():
            if stage.fresh and name.startswith(stage.fresh) and at_start:
                parameter.data.copy_(self.initial[name])
        own, captures = "method.encoder" if self.method.needs == "images" else "tail", self._captures()
        parts = self.source, self.method, self.modules, optimiser, self.target
        self.step = Step(stage, *parts, own=own, captures=captures)
        self.step.resumed = {n.removeprefix("sums."): t for n, t in tensors.items() if n.startswith("sums.")}
        return optimiser

    def _captures(self) -> bool:
        """Steps of several processes talk to each other, and an encoder of images may do anything: both stay eager."""
        tokens = self.method.needs == "tokens" and self.method.capturable
        return tokens and self.device.type == "cuda" and world_size() == 1 and not self.config.eager

    def seconds(self) -> float:
        """Time spent in `fit` so far, with that of the interrupted runs before it."""
        return time.monotonic() - self.started

    def epochs(self, stage: Stage) -> int:
        return self.config.epochs if stage.epochs is None else stage.epochs

    def lr(self, stage: Stage) -> float:
        return self.guard.slowed * (self.config.lr if stage.lr is None else stage.lr)

    # -- one epoch ----------------------------------------------------------------------------------

    def _run_epoch(
        self,
        stage: Stage,
        epoch: int,
        epochs: int,
        optimiser: torch.optim.Optimizer,
        stop: StopRequest,
        bar: TrainingBar,
    ) -> Generator[None, None, None]:
        assert self.step is not None
        lr = cosine_lr(self.lr(stage), epoch, epochs, self.config.warmup)
        set_rate(optimiser, lr)
        if not self.position.begun:
            self._before_epoch(stage, epoch)
            self.position.begun = True
        clock = {"epoch": float(epoch), "progress": epoch / epochs}
        self.step.set_clock({**clock, **self.method.schedule(stage, epoch, epochs)})
        self.modules.train()
        first = self.position.step
        drawn = self.coming or self._draw_epoch(stage, epoch, first)
        for step, draw in enumerate(drawn, start=first):
            terms = self.step(draw)
            self.position.step, self.position.counter = step + 1, self.position.counter + 1
            bar.step(dict(zip(self.step.names, terms, strict=True)) if bar.show else {})
            stopping = any_process(stop.requested, self.device)
            if stopping or time.monotonic() - self.last_save > self.config.save_seconds:
                self._save()
            if stopping:
                self.source.close()
                stop.leave(f"stage {stage.name}, epoch {epoch + 1} of {epochs}, step {step + 1}")
            yield
        # drawn before the log waits for the device, so that the next epoch begins at once
        self.coming = self._draw_epoch(stage, epoch + 1) if epoch + 1 < epochs else None
        self._log_epoch(stage, epoch, epochs, lr, bar)

    def _draw_epoch(self, stage: Stage, epoch: int, first: int = 0) -> Iterator[Drawn]:
        """The steps of an epoch from step `first` on, of which the first few are drawn now."""
        key = (self.seed, self.position.stage, epoch)
        n = self.steps * self.config.batch_size
        sampler = SAMPLERS[stage.sampler]
        rows = sampler(self.rows.labelled, self.rows.unlabelled, n, keyed_generator(*key, "rows"))
        drawn = draw_steps(rows.view(self.steps, -1), first, self.source, self.method, stage.views, key)
        return chain(list(islice(drawn, 1)), drawn)

    def _before_epoch(self, stage: Stage, epoch: int) -> None:
        assert self.step is not None
        self.modules.eval()
        self.step.reset_sums()
        with torch.no_grad():
            self.method.before_epoch(stage, epoch, self._features, self.target.to(self.device))

    def _features(self) -> Tensor:
        """(N, D) of every image of the table, with the weights as they are."""
        return table_features(self.source, self.rows.usable, len(self.table))

    # -- what is written --------------------------------------------------------------------------

    def _log_epoch(self, stage: Stage, epoch: int, epochs: int, lr: float, bar: TrainingBar) -> None:
        """One line of means, unless the loss has left its course: then LeftCourse is raised."""
        assert self.step is not None
        sums = self.step.named_sums()
        values = torch.stack([*sums.values()]).tolist() if sums else []  # read at once: each read waits
        means = {name: value / self.steps for name, value in zip(sums, values, strict=True)}
        self.guard.judge(self.position.stage, means, self.learnable.values())
        after = Position(self.position.stage, epoch + 1, 0, self.position.counter)
        self.guard.keep(after, self.step.tensors())
        entry = {"stage": stage.name, "epoch": epoch, "counter": self.position.counter, "lr": lr}
        watched = {name: float(value) for name, value in self.method.diagnostics().items()}
        self.journal.write(
            kind="epoch", **entry, loss=sum(means.values()), **means, **watched, seconds=self.seconds()
        )
        last = epoch + 1 == epochs
        if self.score and not last and (epoch + 1) % self.config.eval_every == 0 and self.method.scores_early:
            scores = self.score(self.predict())
            self.journal.write(kind="score", **entry, **scores)
            bar.say(f"epoch {epoch + 1}: {score_line(scores)}")

    def _save(self) -> None:
        self.last_save = time.monotonic()
        assert self.step is not None
        self.journal.save(self.guard.pack(State(self.position, self.seconds(), self.step.tensors())))

    def _resume(self) -> dict[str, Tensor]:
        """Load the state of the run folder, if there is one; returns its tensors."""
        state = self.journal.resume()
        if state is None:
            self.guard.keep(self.position, self.modules.state_dict())
            return {}
        self.started -= state.seconds
        return self._load(self.guard.unpack(state))

    def _load(self, state: State) -> dict[str, Tensor]:
        self.modules.load_state_dict({name: state.tensors[name] for name in self.modules.state_dict()})
        self.position = state.position
        return state.tensors

    # -- the end ----------------------------------------------------------------------------------

    @torch.no_grad()
    def _finish(self) -> Prediction:
        self.modules.eval()
        features = self.features = self._features()
        rows = self.rows.usable.to(features.device)
        label = self.target.to(features.device)[rows]
        self.method.finish(features[rows], label, keyed_generator(self.seed, "finish"))
        return place(self.method, features, self.rows.usable)

    @torch.no_grad()
    def predict(self) -> Prediction:
        """Place every image with the weights as they are."""
        self.modules.eval()
        return place(self.method, self._features(), self.rows.usable)

    def model_tensors(self) -> dict[str, Tensor]:
        """Tail and method, as they are written to model.safetensors."""
        return dict(self.modules.state_dict())
