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
from holotype.train.progress import StopRequest, TrainingBar
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
    matmul: Literal["highest", "high"] = "high"
    """Precision of fp32 matrix products on CUDA: high allows TF32."""
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
        identity: dict[str, Any] | None = None,
        score: Score | None = None,
        progress: bool = False,
    ) -> None:
        self.config, self.table, self.fabric, self.seed = config, table, fabric, seed
        self.encoder = Encoder(store, backbone, method, fabric)
        self.method = method.to(self.encoder.device, self.encoder.dtype)
        self.folder, self.identity, self.score, self.progress = folder, identity or {}, score, progress
        self.modules = nn.ModuleDict({"tail": self.encoder.tail, "method": self.method})
        self.learnable = {n: p for n, p in self.modules.named_parameters() if p.requires_grad}
        self.initial = {name: parameter.detach().clone() for name, parameter in self.learnable.items()}
        self.position, self.seconds = Position(), 0.0
        self.sums: dict[str, Tensor] = {}
        self.metrics = Metrics(folder.path / "metrics.jsonl") if folder and rank() == 0 else None
        self._index_rows()

    def _index_rows(self) -> None:
        usable = torch.from_numpy(self.table.usable.copy())
        self.target = torch.from_numpy(self.table.target.copy())
        self.rows = usable.nonzero().flatten()
        self.labelled_rows = (usable & (self.target >= 0)).nonzero().flatten()
        self.unlabelled_rows = (usable & (self.target < 0)).nonzero().flatten()
        self.steps = len(self.rows) // self.config.batch_size
        if self.steps == 0:
            raise InputError(
                f"the batch size {self.config.batch_size} is larger than the {len(self.rows)} usable images of "
                f"{self.table.name}; lower it with --train.batch_size."
            )
        if self.config.batch_size % world_size():
            raise InputError(
                f"the batch size {self.config.batch_size} cannot be shared evenly by {world_size()} processes; "
                "choose a multiple with --train.batch_size."
            )

    # -- the way through the stages ---------------------------------------------------------------

    def fit(self) -> Prediction:
        """Train to the end and place every image; resumes where a state is found."""
        tensors = self._resume()
        stages = self.method.stages()
        self.last_save = time.monotonic()
        with StopRequest() as self.stop:
            while self.position.stage < len(stages):
                self._run_stage(stages[self.position.stage], tensors)
                tensors = {}
                self.position = Position(stage=self.position.stage + 1, counter=self.position.counter)
        return self._finish()

    def _run_stage(self, stage: Stage, tensors: dict[str, Tensor]) -> None:
        epochs = stage.epochs or self.config.epochs
        optimiser = self._begin_stage(stage, tensors)
        with TrainingBar(self.progress and rank() == 0, stage.name, epochs * self.steps) as bar:
            bar.advance_to(self.position.epoch * self.steps + self.position.step)
            for epoch in range(self.position.epoch, epochs):
                self.position.epoch = epoch
                self._run_epoch(stage, epoch, epochs, optimiser, bar)
                self.position = Position(self.position.stage, epoch + 1, 0, self.position.counter)
                if epoch + 1 == epochs or time.monotonic() - self.last_save > self.config.save_seconds:
                    self._save(optimiser)

    def _begin_stage(self, stage: Stage, tensors: dict[str, Tensor]) -> torch.optim.Optimizer:
        """Freeze, refresh and build the optimiser; then put back what the state holds."""
        at_start = self.position.epoch == 0 and self.position.step == 0 and not self.position.begun
        for name, parameter in self.learnable.items():
            parameter.requires_grad_(name.startswith(stage.trains))
            if stage.fresh and name.startswith(stage.fresh) and at_start:
                parameter.data.copy_(self.initial[name])
        optimiser = torch.optim.SGD(
            self._parameter_groups(), lr=stage.lr or self.config.lr, momentum=self.config.momentum
        )
        for name, parameter in self.learnable.items():
            if f"momentum.{name}" in tensors:
                momentum = tensors[f"momentum.{name}"].to(parameter)
                optimiser.state[parameter]["momentum_buffer"] = momentum
        return optimiser

    def _parameter_groups(self) -> list[dict[str, Any]]:
        """Weight decay for matrices only, as in the reference code."""
        training = [p for p in self.learnable.values() if p.requires_grad]
        if not training:
            raise InputError("no parameter learns in this stage; check its `trains` prefixes.")
        matrices = [p for p in training if p.ndim > 1]
        others = [p for p in training if p.ndim <= 1]
        return [
            {"params": matrices, "weight_decay": self.config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]

    # -- one epoch, one step ----------------------------------------------------------------------

    def _run_epoch(
        self, stage: Stage, epoch: int, epochs: int, optimiser: torch.optim.Optimizer, bar: TrainingBar
    ) -> None:
        lr = cosine_lr(stage.lr or self.config.lr, epoch, epochs)
        for group in optimiser.param_groups:
            group["lr"] = lr
        if not self.position.begun:
            self._before_epoch(stage, epoch)
            self.position.begun = True
        key = (self.seed, self.position.stage, epoch)
        pool = SAMPLERS[stage.sampler](
            self.labelled_rows,
            self.unlabelled_rows,
            self.steps * self.config.batch_size,
            keyed_generator(*key, "rows"),
        ).view(self.steps, -1)
        now = self._clock(stage, epoch, epochs)
        started = time.monotonic()
        for step in range(self.position.step, self.steps):
            terms = self._step(stage, pool[step], (*key, step), now, optimiser)
            self.position.step, self.position.counter = step + 1, self.position.counter + 1
            bar.step(terms)
            if any_process(self.stop.requested, self.encoder.device):
                self.seconds += time.monotonic() - started
                self._save(optimiser)
                self.stop.leave(f"stage {stage.name}, epoch {epoch + 1} of {epochs}, step {step + 1}")
        self.seconds += time.monotonic() - started
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
        own = "method.encoder" if self.method.needs == "images" else "tail"
        sum_gradients(
            [p for n, p in self.learnable.items() if n.startswith(own)],
            [p for n, p in self.learnable.items() if not n.startswith(own)],
        )
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

        def features() -> Tensor:
            return self.encoder.table_features(self.rows, len(self.table))

        with torch.no_grad():
            self.method.before_epoch(stage, epoch, features, self.target.to(self.encoder.device))

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
        self._write(kind="epoch", **entry, loss=sum(means.values()), **means, **watched, seconds=self.seconds)
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
        for name, parameter in self.learnable.items():
            momentum = optimiser.state.get(parameter, {}).get("momentum_buffer")
            if momentum is not None:
                tensors[f"momentum.{name}"] = momentum
        tensors |= {f"sums.{name}": value for name, value in self.sums.items()}
        facts = {**vars(self.position), "seconds": self.seconds, "identity": self.identity}
        save_state(self.folder.path, tensors, facts)

    def _resume(self) -> dict[str, Tensor]:
        """Load the state of the run folder, if there is one; returns its tensors."""
        facts = read_facts(self.folder.path) if self.folder else None
        if self.folder is None or facts is None:
            return {}
        tensors = load_tensors(self.folder.path, facts)
        own = {name: tensors[name] for name in self.modules.state_dict()}
        self.modules.load_state_dict(own)
        self.position = Position(**{name: facts[name] for name in vars(Position())})
        self.seconds = facts["seconds"]
        device = self.encoder.device
        self.sums = {
            n.removeprefix("sums."): t.to(device) for n, t in tensors.items() if n.startswith("sums.")
        }
        if self.metrics:
            self.metrics.rewind(self.position.counter)
        return tensors

    # -- the end ----------------------------------------------------------------------------------

    @torch.no_grad()
    def _finish(self) -> Prediction:
        self.modules.eval()
        features = self.encoder.table_features(self.rows, len(self.table))
        rows = self.rows.to(features.device)
        label = self.target.to(features.device)[rows]
        self.method.finish(features[rows], label, keyed_generator(self.seed, "finish"))
        return place(self.method, features, self.rows)

    @torch.no_grad()
    def predict(self) -> Prediction:
        """Place every image with the weights as they are."""
        self.modules.eval()
        return place(self.method, self.encoder.table_features(self.rows, len(self.table)), self.rows)

    def model_tensors(self) -> dict[str, Tensor]:
        """Tail and method, as they are written to model.safetensors."""
        return dict(self.modules.state_dict())
