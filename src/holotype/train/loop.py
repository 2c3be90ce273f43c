"""The training loop: the only one. It knows stages, steps and state, and no method by name."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from holotype.data.sampling import SAMPLERS, keyed_generator
from holotype.data.store import ImageStore
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.methods.base import Batch, Method, Prediction, Stage
from holotype.methods.schedule import cosine_lr
from holotype.models.backbone import Backbone
from holotype.run import Metrics, RunFolder
from holotype.train.encode import Encoder, place
from holotype.train.gather import any_process, rank, sum_gradients, world_size
from holotype.train.optimiser import build_sgd, momentum_tensors, restore_momentum
from holotype.train.progress import StopRequest, TrainingBar
from holotype.train.rows import index_rows
from holotype.train.state import load_tensors, read_facts, save_state


@dataclass
class TrainConfig:
    """How training runs; the defaults are those of SimGCD's released code."""

    epochs: int = 200
    """Epochs of a stage that does not set its own; an epoch is as many draws as there are images."""
    batch_size: int = 128
    """Images per step over all processes together."""
    lr: float = 0.1
    """Learning rate of the first epoch; it falls to a thousandth along a cosine."""
    momentum: float = 0.9
    """Momentum of SGD."""
    weight_decay: float = 5e-5
    """Weight decay of matrices; biases and other one-dimensional parameters have none."""
    precision: Literal["auto", "fp32", "bf16", "fp64"] = "auto"
    """Arithmetic of the backbone: auto is bf16 on CUDA and fp32 elsewhere; heads and losses are never below fp32."""
    matmul: Literal["highest", "high"] = "highest"
    """Precision of fp32 matrix products on CUDA: high allows TF32, which heads and losses hardly gain from."""
    eval_every: int = 10
    """Score every so many epochs, and after the last."""
    save_seconds: float = 60.0
    """Seconds between two saved states; one is also saved at the end and when stopped with Ctrl-C."""


@dataclass
class Position:
    """Where training stands: the next step to take."""

    stage: int = 0
    epoch: int = 0
    step: int = 0
    counter: int = 0
    """Steps taken since the start, over all stages."""
    begun: bool = False
    """Whether the work at the start of the epoch (before_epoch) has been done."""


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
        fabric: Fabric,
        *,
        seed: int,
        folder: RunFolder | None = None,
        score: Score | None = None,
        progress: bool = False,
    ) -> None:
        self.config, self.table, self.fabric, self.seed = config, table, fabric, seed
        self.encoder = Encoder(store, backbone, method, fabric)
        self.method = method.to(self.encoder.device, self.encoder.dtype)
        self.folder, self.score, self.progress = folder, score, progress
        self.modules = nn.ModuleDict({"tail": self.encoder.tail, "method": self.method})
        self.learnable = {n: p for n, p in self.modules.named_parameters() if p.requires_grad}
        # what each process learns from its own rows, and what all of them learn from the whole batch
        own = "method.encoder" if method.needs == "images" else "tail"
        self.local = [p for n, p in self.learnable.items() if n.startswith(own)]
        self.common = [p for n, p in self.learnable.items() if not n.startswith(own)]
        self.initial = {name: parameter.detach().clone() for name, parameter in self.learnable.items()}
        self.position = Position()
        self.started = self.last_save = time.monotonic()
        self.sums: dict[str, Tensor] = {}
        self.metrics = Metrics(folder.path / "metrics.jsonl") if folder and rank() == 0 else None
        # a method that only clusters has no batches
        self.rows = index_rows(table, config.batch_size if method.stages() else world_size())
        self.target, self.steps = self.rows.target, self.rows.steps

    # -- the way through the stages ---------------------------------------------------------------

    def fit(self) -> Prediction:
        """Train to the end and place every image; resumes where a state is found."""
        self.started = self.last_save = time.monotonic()
        tensors = self._resume()
        stages = self.method.stages()
        with StopRequest() as self.stop:
            while self.position.stage < len(stages):
                self._run_stage(stages[self.position.stage], tensors)
                tensors = {}
                self.position = Position(stage=self.position.stage + 1, counter=self.position.counter)
        return self._finish()

    def _run_stage(self, stage: Stage, tensors: dict[str, Tensor]) -> None:
        epochs = self.epochs(stage)
        optimiser = self._begin_stage(stage, tensors)
        with TrainingBar(self.progress and rank() == 0, stage.name, epochs * self.steps) as bar:
            bar.advance_to(self.position.epoch * self.steps + self.position.step)
            for epoch in range(self.position.epoch, epochs):
                self.position.epoch = epoch
                self._run_epoch(stage, epoch, epochs, optimiser, bar)
                self.position = Position(self.position.stage, epoch + 1, 0, self.position.counter)
            self._save(optimiser)

    def _begin_stage(self, stage: Stage, tensors: dict[str, Tensor]) -> torch.optim.Optimizer:
        """Build the stage's optimiser with the momentum of the state, or refresh what starts anew."""
        c = self.config
        optimiser = build_sgd(self.learnable, stage.trains, self.lr(stage), c.momentum, c.weight_decay)
        restore_momentum(optimiser, self.learnable, tensors)
        at_start = self.position.epoch == 0 and self.position.step == 0 and not self.position.begun
        for name, parameter in self.learnable.items():
            if stage.fresh and name.startswith(stage.fresh) and at_start:
                parameter.data.copy_(self.initial[name])
        return optimiser

    def seconds(self) -> float:
        """Time spent in `fit` so far, with that of the interrupted runs before it."""
        return time.monotonic() - self.started

    def epochs(self, stage: Stage) -> int:
        return self.config.epochs if stage.epochs is None else stage.epochs

    def lr(self, stage: Stage) -> float:
        return self.config.lr if stage.lr is None else stage.lr

    # -- one epoch, one step ----------------------------------------------------------------------

    def _run_epoch(
        self, stage: Stage, epoch: int, epochs: int, optimiser: torch.optim.Optimizer, bar: TrainingBar
    ) -> None:
        lr = cosine_lr(self.lr(stage), epoch, epochs)
        for group in optimiser.param_groups:
            group["lr"] = lr
        if not self.position.begun:
            self._before_epoch(stage, epoch)
            self.position.begun = True
        key = (self.seed, self.position.stage, epoch)
        n = self.steps * self.config.batch_size
        drawn = SAMPLERS[stage.sampler](
            self.rows.labelled, self.rows.unlabelled, n, keyed_generator(*key, "rows")
        ).view(self.steps, -1)
        now = self._clock(stage, epoch, epochs)
        for step in range(self.position.step, self.steps):
            terms = self._step(stage, drawn[step], (*key, step), now, optimiser)
            self.position.step, self.position.counter = step + 1, self.position.counter + 1
            bar.step(terms)
            stopping = any_process(self.stop.requested, self.encoder.device)
            if stopping or time.monotonic() - self.last_save > self.config.save_seconds:
                self._save(optimiser)
            if stopping:
                self.stop.leave(f"stage {stage.name}, epoch {epoch + 1} of {epochs}, step {step + 1}")
        self._log_epoch(stage, epoch, epochs, lr, bar)

    def _clock(self, stage: Stage, epoch: int, epochs: int) -> dict[str, Tensor]:
        values = {
            "epoch": float(epoch),
            "progress": epoch / epochs,
            **self.method.schedule(stage, epoch, epochs),
        }
        return {
            name: torch.tensor(value, device=self.encoder.device, dtype=self.encoder.dtype)
            for name, value in values.items()
        }

    def _step(
        self,
        stage: Stage,
        rows: Tensor,
        key: tuple[int, ...],
        now: dict[str, Tensor],
        optimiser: torch.optim.Optimizer,
    ) -> dict[str, Tensor]:
        self.modules.train()
        features = self.encoder.training_features(rows, stage.views, key)
        terms = self.method.loss(self._batch(rows, features, key), now)
        optimiser.zero_grad(set_to_none=True)
        torch.stack(list(terms.values())).sum().backward()
        sum_gradients(self.local, self.common)
        optimiser.step()
        with torch.no_grad():
            self.method.after_step()
            detached = {name: term.detach() for name, term in terms.items()}
            for name, term in detached.items():
                self.sums[name] = self.sums[name] + term if name in self.sums else term.clone()
        return detached

    def _batch(self, rows: Tensor, features: Tensor, key: tuple[int, ...]) -> Batch:
        device, dtype = features.device, features.dtype
        target = self.target[rows]
        random = {
            name: torch.rand(shape, generator=keyed_generator(*key, name)).to(device, dtype)
            for name, shape in self.method.draws(len(rows)).items()
        }
        return Batch(
            features=features,
            label=target.clamp_min(0).to(device),
            labelled=(target >= 0).to(device),
            image=rows.to(device),
            random=random,
        )

    def _before_epoch(self, stage: Stage, epoch: int) -> None:
        self.modules.eval()
        self.sums = {}
        with torch.no_grad():
            self.method.before_epoch(stage, epoch, self._features, self.target.to(self.encoder.device))

    def _features(self) -> Tensor:
        """(N, D) of every image of the table, with the weights as they are."""
        return self.encoder.table_features(self.rows.usable, len(self.table))

    # -- what is written --------------------------------------------------------------------------

    def _log_epoch(self, stage: Stage, epoch: int, epochs: int, lr: float, bar: TrainingBar) -> None:
        """One line of means; a loss that is no longer a number ends the run before it is saved."""
        means = {name: float(value) / self.steps for name, value in self.sums.items()}
        if not all(math.isfinite(value) for value in means.values()):
            raise InputError(
                f"the loss became {means} in epoch {epoch + 1} of stage {stage.name}; the last saved state is "
                "sound: lower --train.lr, or use --train.precision fp32, and choose a new --out."
            )
        entry = {"stage": stage.name, "epoch": epoch, "counter": self.position.counter, "lr": lr}
        watched = {name: float(value) for name, value in self.method.diagnostics().items()}
        self._write(
            kind="epoch", **entry, loss=sum(means.values()), **means, **watched, seconds=self.seconds()
        )
        last = epoch + 1 == epochs
        if self.score and not last and (epoch + 1) % self.config.eval_every == 0 and self.method.scores_early:
            scores = self.score(self.predict())
            self._write(kind="score", **entry, **scores)
            bar.say(
                f"epoch {epoch + 1}: " + ", ".join(f"{k} {v:.3f}" for k, v in scores.items() if v is not None)
            )

    def _write(self, **entry: Any) -> None:
        if self.metrics:
            self.metrics.append(**entry)

    def _save(self, optimiser: torch.optim.Optimizer) -> None:
        self.last_save = time.monotonic()
        if self.folder is None or rank() != 0:
            return
        tensors = dict(self.modules.state_dict())
        tensors |= momentum_tensors(optimiser, self.learnable)
        tensors |= {f"sums.{name}": value for name, value in self.sums.items()}
        facts = {**vars(self.position), "seconds": self.seconds()}
        save_state(self.folder.path, tensors, facts)

    def _resume(self) -> dict[str, Tensor]:
        """Load the state of the run folder, if there is one; returns its tensors."""
        facts = read_facts(self.folder.path) if self.folder else None
        if self.folder is None or facts is None:
            if self.metrics:
                self.metrics.rewind(0)  # a run that died before its first state left lines, too
            return {}
        tensors = load_tensors(self.folder.path, facts)
        own = {name: tensors[name] for name in self.modules.state_dict()}
        self.modules.load_state_dict(own)
        self.position = Position(**{name: facts[name] for name in vars(Position())})
        self.started -= facts["seconds"]
        device = self.encoder.device
        self.sums = {
            n.removeprefix("sums."): t.to(device) for n, t in tensors.items() if n.startswith("sums.")
        }
        if self.metrics:
            # inside an epoch its line is still to come, even where all its steps are done
            self.metrics.rewind(self.position.counter - (self.position.step > 0))
        return tensors

    # -- the end ----------------------------------------------------------------------------------

    @torch.no_grad()
    def _finish(self) -> Prediction:
        self.modules.eval()
        features = self._features()
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
