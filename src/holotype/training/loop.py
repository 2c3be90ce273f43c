"""The training loop: the only one. It knows stages, steps and state, and no method by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holotype.config.schema import TrainConfig
from holotype.data.image_store import ImageStore, VectorStore
from holotype.data.samplers import keyed_generator
from holotype.data.table import Table, first_frames
from holotype.methods.base import Images, Method, Prediction, Progress, Stage
from holotype.models.backbone import Backbone
from holotype.models.token_cache import TokenCache
from holotype.training.batches import StageDraws, training_rows
from holotype.training.callbacks import Callback
from holotype.training.checkpoint import Checkpointer, CheckpointState, Position
from holotype.training.divergence import Diverged, DivergenceGuard
from holotype.training.encoder import predict_table
from holotype.training.optim import build_optimiser, logged_rate, reset_parameters, restore_state, set_rates
from holotype.training.progress import StopRequest, TrainingBar, score_line
from holotype.training.step import Step, out_of_memory, pays_to_compile
from holotype.training.views import Key, ViewSources, evaluation_features, table_features
from holotype.utils.device import Device
from holotype.utils.distributed import any_rank, rank
from holotype.utils.memory import is_out_of_memory
from holotype.utils.serialization import SchemaError

Score = Callable[[Prediction], dict[str, Any]]
Training = Generator[None, None, Prediction]
"""Of a loop: yields after each step, and returns where the images are placed."""


@dataclass(frozen=True)
class StageRun:
    """One stage while it trains: its batches, and its step with the optimiser."""

    stage: Stage
    epochs: int
    batches: StageDraws
    step: Step


class Loop:
    """Train one method on one table. `fit` resumes by itself from the run folder."""

    current: StageRun
    """The stage that trains; after training, the last one. Set when the first stage begins."""
    prediction: Prediction
    """Of every image; set when training ends."""
    features: Tensor
    """(N, D) of every image after the last step, zeros for those that cannot be read; set when training ends."""

    def __init__(
        self,
        config: TrainConfig,
        method: Method,
        backbone: Backbone,
        store: ImageStore | VectorStore,
        table: Table,
        compute: Device,
        *,
        seed: int,
        folder: Path | None = None,
        score: Score | None = None,
        progress: bool = False,
        cache: TokenCache | None = None,
        identity: str = "",
        callbacks: Sequence[Callback] = (),
    ) -> None:
        """cache: stages on tokens draw their views from it; without one they are cut anew.

        identity: digest of what the run is, kept with its states.
        """
        self.config, self.table, self.compute, self.seed = config, table, compute, seed
        self.stages, self.device = method.stages(), compute.device
        self.sources = ViewSources(config, method, backbone, store, compute, cache, seed)
        self.encoder = self.sources.encoder
        self.source = self.sources.of(self.stages[0] if self.stages else self.encoder.last)
        """Of the stage that runs; after training, of the last one."""
        self.method = method.to(self.device, self.encoder.dtype)
        self.score, self.progress, self.callbacks, self.interrupted = score, progress, callbacks, False
        self.modules = nn.ModuleDict({"tail": self.encoder.module, "method": self.method})
        self.learnable = {n: p for n, p in self.modules.named_parameters() if p.requires_grad}
        self.initial = {name: parameter.detach().clone() for name, parameter in self.learnable.items()}
        self.position = Position()
        self.started = self.last_save = time.monotonic()
        self.captured: dict[str, bool] = {}
        """Stages so far, and whether their steps were replayed as a CUDA graph."""
        self.journal = Checkpointer(folder, identity)
        self.guard = DivergenceGuard(round(config.warmup * config.epochs), config.guard)
        self.rows = training_rows(table, config, self.stages)
        self.side = None if table.side is None else torch.tensor(table.side)
        self.steps = self.rows.steps
        sizes = [stage.batch_size or config.batch_size for stage in self.stages]
        self.stage_steps = [self.rows.full_batches(size) for size in sizes]
        """Of an epoch of each stage, as far as they are known: a method that draws rows of its own may take others."""
        method.batch_size, method.steps = config.batch_size, self.steps

    @property
    def mode(self) -> str:
        """Name how views are made: `exact`, `cached 16+8`, `images`, or each of them with its epochs."""
        return self.sources.mode(self.config.epochs)

    @property
    def total_steps(self) -> int:
        """Of the run, as far as they are known."""
        return sum(n * self.epochs(stage) for n, stage in zip(self.stage_steps, self.stages, strict=True))

    def fit(self) -> Prediction:
        """Train to the end and place every image; resumes where a state is found."""
        with StopRequest() as stop:
            try:
                for _ in self.training(stop):
                    pass
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                raise out_of_memory(self.source.stage, self.config.batch_size) from error
        return self.prediction

    def training(self, stop: StopRequest, bar: TrainingBar | None = None) -> Training:
        """`fit` in pieces: yields after each step, so that several loops can take turns.

        bar: one that several loops share; without it each stage has its own.
        """
        self.started = self.last_save = time.monotonic()
        tensors = self._resume()
        while self.position.stage < len(self.stages):
            stage = self.stages[self.position.stage]
            try:
                yield from self._run_stage(stage, tensors, stop, bar)
                tensors = {}
                self.position = Position(stage=self.position.stage + 1, counter=self.position.counter)
            except Diverged as left:
                sound = self.guard.go_back(left, stage.name, self.position, self.lr(stage))
                self.source.close()
                tensors = self._load(sound)
                self.journal.restart(sound, self.guard.restarts)
        return self._finish()

    def _run_stage(
        self, stage: Stage, tensors: dict[str, Tensor], stop: StopRequest, shared: TrainingBar | None
    ) -> Iterator[None]:
        run = self.current = self._begin_stage(stage, tensors)
        bar = shared or TrainingBar(
            self.progress and rank() == 0, stage.name, run.epochs * self.stage_steps[self.position.stage]
        )
        with nullcontext() if shared else bar:
            first = self.position.epoch
            for epoch in range(first, run.epochs):
                self.position.epoch = epoch
                yield from self._run_epoch(run, epoch, stop, bar, epoch == first)
                self.position = Position(self.position.stage, epoch + 1, 0, self.position.counter)
            self._save(run)

    def _begin_stage(self, stage: Stage, tensors: dict[str, Tensor]) -> StageRun:
        """Build the optimiser with the momentum of a state, or reset what starts anew; the views, batches and step."""
        c, at, epochs, slowed = self.config, self.position, self.epochs(stage), self.guard.slowed
        rates = (self.lr(stage), c.momentum, c.weight_decay, stage.rates, slowed, c.block_rate)
        optimiser = build_optimiser(self.learnable, stage.trains, *rates, c.optimiser)
        restore_state(optimiser, self.learnable, tensors)
        if at.epoch == 0 and at.step == 0 and not at.begun:
            reset_parameters(self.learnable, self.initial, stage.fresh)
        self.source = self.sources.of(stage)
        key = (self.seed, at.stage)
        size = stage.batch_size or c.batch_size
        self.method.batch_size, self.method.steps = size, self.rows.full_batches(size)
        batches = StageDraws(stage, self.source, self.method, self.rows, size, epochs, key)
        blocks, steps = len(self.encoder.tail.blocks), epochs * self.rows.full_batches(size)
        compiled = not c.eager and pays_to_compile(stage, steps, blocks, self.device)
        parts = (stage, self.source, self.method, self.modules, optimiser, self.rows.target)
        step = Step(*parts, c.eager, compiled, clip=c.clip, side=self.side)
        step.resumed = {n.removeprefix("sums."): t for n, t in tensors.items() if n.startswith("sums.")}
        return StageRun(stage, epochs, batches, step)

    def seconds(self) -> float:
        """Time spent in `fit` so far, with that of the interrupted runs before it."""
        return time.monotonic() - self.started

    def epochs(self, stage: Stage) -> int:
        return stage.length(self.config.epochs)

    def lr(self, stage: Stage) -> float:
        return self.guard.slowed * (self.config.lr if stage.lr is None else stage.lr)

    def _run_epoch(
        self, run: StageRun, epoch: int, stop: StopRequest, bar: TrainingBar, begins: bool
    ) -> Iterator[None]:
        """begins: whether it is the first of the stage in this process."""
        if not self.position.begun:
            self._before_epoch(run, epoch)
            self.position.begun = True
        first = self.position.step
        steps, drawn = run.batches.epoch(epoch, first)
        self._count_steps(run, steps, bar, begins)
        self.modules.train()
        for step, batch in enumerate(drawn, start=first):
            set_rates(run.step.optimiser, self.config.warmup, Progress(epoch, run.epochs, step, steps))
            terms = run.step(batch)
            self.position.step, self.position.counter = step + 1, self.position.counter + 1
            bar.step(dict(zip(run.step.names, terms, strict=True)) if bar.show else {})
            if self.callbacks:
                self._tell(
                    "on_step_end", self.position.counter, dict(zip(run.step.names, terms, strict=True))
                )
            self.journal.beat(self.position, run.stage.name, run.epochs, self.total_steps, terms)
            stopping = any_rank(stop.requested or self.interrupted, self.device)
            if stopping or time.monotonic() - self.last_save > self.config.save_seconds:
                self._save(run)
            if stopping:
                self.source.close()
                stop.leave(f"stage {run.stage.name}, epoch {epoch + 1} of {run.epochs}, step {step + 1}")
            yield
        # before the log waits for the device, so that the next epoch begins at once
        run.batches.draw_ahead(epoch + 1)
        self._log_epoch(run, epoch, steps, bar)

    def _count_steps(self, run: StageRun, steps: int, bar: TrainingBar, begins: bool) -> None:
        """Correct the totals by the steps that an epoch has, and show how far the run is where it begins here."""
        at = self.position
        bar.grow(run.epochs * (steps - self.stage_steps[at.stage]))
        self.stage_steps[at.stage] = steps
        if begins:
            bar.advance_to(at.counter if bar.is_shared else at.epoch * steps + at.step)

    def _before_epoch(self, run: StageRun, epoch: int) -> None:
        self.modules.eval()
        run.step.reset_sums()
        rows, key = self.rows.usable, (self.seed, self.position.stage, epoch, "images")
        images = self._images(rows, key, lambda: evaluation_features(self.source, rows))
        with torch.no_grad():
            self.method.before_epoch(run.stage, epoch, images)

    def _images(self, rows: Tensor, key: Key, features: Callable[[], Tensor]) -> Images:
        target = self.rows.target
        row, label = rows.to(self.device), target[rows].to(self.device)
        side = None if self.side is None else self.side[rows].to(self.device, self.encoder.dtype)
        return Images(row, label, len(target), keyed_generator(*key), features, side)

    def _log_epoch(self, run: StageRun, epoch: int, steps: int, bar: TrainingBar) -> None:
        """Write one line of means over the steps; raise Diverged where the loss has left its course."""
        name, epochs = run.stage.name, run.epochs
        self.captured[name] = run.step.captured is not None
        means = run.step.means(steps)
        self.guard.judge(self.position.stage, means, self.learnable.values())
        after = Position(self.position.stage, epoch + 1, 0, self.position.counter)
        self.guard.keep(after, run.step.tensors())
        lr = logged_rate(run.step.optimiser, self.config.warmup, Progress(epoch, epochs, steps - 1, steps))
        entry = {"stage": name, "epoch": epoch, "counter": self.position.counter, "lr": lr}
        watched = {name: float(value) for name, value in self.method.diagnostics().items()}
        line = {"kind": "epoch", **entry, "loss": sum(means.values()), "seconds": self.seconds()}
        self._write(**{**line, **means, **watched, **line})  # a method may use our names
        due = epoch + 1 < epochs and (epoch + 1) % self.config.eval_every == 0
        if self.score and due and self.method.scores_early:
            scores = self.score(self.predict())
            self._write(kind="score", **entry, **scores)
            bar.say(f"epoch {epoch + 1}: {score_line(scores)}")

    def _write(self, **line: Any) -> None:
        self.journal.write(**line)
        self._tell("on_epoch", line)

    def _tell(self, event: str, *what: Any) -> None:
        """Call the callbacks, of which one may ask for a stop."""
        try:
            for callback in self.callbacks:
                getattr(callback, event)(*what)
        except KeyboardInterrupt:
            self.interrupted = True

    def _save(self, run: StageRun) -> None:
        self.last_save = time.monotonic()
        state = CheckpointState(self.position, self.seconds(), run.step.tensors(), captured=self.captured)
        self.journal.save(self.guard.pack(state))

    def _resume(self) -> dict[str, Tensor]:
        """Load the state of the run folder, if there is one; returns its tensors."""
        if (state := self.journal.resume()) is None:
            self.guard.keep(self.position, self.modules.state_dict())
            return {}
        self.started, self.captured = self.started - state.seconds, dict(state.captured)
        try:
            return self._load(self.guard.unpack(state, len(self.stages)))
        except (SchemaError, KeyError) as problem:
            raise self.journal.broken(problem) from problem

    def _load(self, state: CheckpointState) -> dict[str, Tensor]:
        self.modules.load_state_dict({name: state.tensors[name] for name in self.modules.state_dict()})
        self.position = state.position
        return state.tensors

    @torch.no_grad()
    def _finish(self) -> Prediction:
        """Let the method do its last work, with one frame of each burst, and place every image."""
        self.modules.eval()
        self.source = self.sources.of(self.encoder.last)
        features = self.features = table_features(self.source, self.rows.usable, len(self.rows.target))
        rows = self.rows.usable
        if self.rows.unit is not None:
            rows = torch.from_numpy(first_frames(self.rows.unit, rows.numpy()))
        row = rows.to(features.device)
        self.method.finish(self._images(rows, (self.seed, "finish"), lambda: features[row]))
        self.prediction = predict_table(self.method, features, self.rows.usable)
        return self.prediction

    @torch.no_grad()
    def predict(self) -> Prediction:
        """Place every image with the weights as they are."""
        self.modules.eval()
        features = table_features(self.source, self.rows.usable, len(self.rows.target))
        return predict_table(self.method, features, self.rows.usable)

    def model_tensors(self) -> dict[str, Tensor]:
        """Encoder (under `tail.`) and method, as they are written to model.safetensors."""
        return dict(self.modules.state_dict())
