"""Resources that runs share: table, backbone, decoded images, token cache.

Each part is made when it is first asked for and kept while runs need the same, so that a sweep over methods and
seeds decodes once and runs the frozen trunk once.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import os
import time
from collections.abc import Sequence
from functools import cached_property

import torch

from holotype.data.bursts import one_per_burst
from holotype.data.image_store import ImageStore, SpillConfig, place_pixels
from holotype.data.load import check_trainable
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.methods import Method
from holotype.methods.base import Views
from holotype.models.backbone import Backbone, load_backbone
from holotype.models.token_cache import CacheViews, TokenCache
from holotype.runs.build import (
    RunData,
    cache_covers,
    load_data,
    max_views,
    requested_views,
    views_needed,
    views_of,
)
from holotype.runs.experiment import Experiment
from holotype.training.build_token_cache import open_cache
from holotype.training.encoder import Encoder
from holotype.training.views import FreshViews, table_features
from holotype.utils.device import Device, pick_device
from holotype.utils.distributed import broadcast_object
from holotype.utils.memory import LEVELS, Budget, cache_folder, find_budget
from holotype.utils.processes import launch, process_count

log = logging.getLogger(__name__)


def make_device(experiment: Experiment) -> Device:
    """Where the run computes, once all its processes are there."""
    device, processes = pick_device(experiment.device), process_count(experiment.devices)
    if device.startswith("cuda") and processes > torch.cuda.device_count() * _device_names():
        raise InputError(
            f"--devices {processes} asks for more GPUs than the {torch.cuda.device_count()} here; "
            "lower it, or use --device cpu."
        )
    if device.startswith("cuda:") and processes > 1:
        raise InputError(f"--device {device} names one GPU for {processes} processes; use --device cuda.")
    launch(processes, "nccl" if device.startswith("cuda") else "gloo")
    return Device.on(device, experiment.precision)


def _device_names() -> int:
    """Machines that a launcher has spread the processes over."""
    processes, here = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    return max(1, processes // max(here, 1)) if "LOCAL_WORLD_SIZE" in os.environ else 1


def sharing_key(experiment: Experiment) -> str:
    """Equal for runs that can share everything here."""
    network = [dataclasses.asdict(experiment.backbone), experiment.precision, experiment.train.shards]
    return json.dumps([image_key(experiment), *network], sort_keys=True)


def image_key(experiment: Experiment) -> str:
    """Equal for runs that can share their images, if these are of the same size."""
    data = [experiment.dataset, experiment.root, experiment.labels, experiment.k]
    place = [experiment.store, pick_device(experiment.device), experiment.devices]
    return json.dumps([*data, *place, dataclasses.asdict(experiment.memory)], sort_keys=True)


class RunResources:
    """A data set and a backbone, made ready for runs."""

    def __init__(
        self,
        experiment: Experiment,
        compute: Device,
        planned: Sequence[Experiment] = (),
        data: RunData | None = None,
        backbone: Backbone | None = None,
        last: RunResources | None = None,
    ) -> None:
        """planned: the runs to come, this one or not; a cache is made to serve all of them.

        data, backbone: those of the experiment, where somebody has them already. last: what the run before was made
        of, whose decoded images are taken over where they are the same.
        """
        self.compute, self.planned = compute, planned
        self.choice, self.memory, self.progress = experiment.store, experiment.memory, experiment.progress
        self.key, self.image_key = sharing_key(experiment), image_key(experiment)
        self.shards = experiment.train.shards
        self.data = data or load_data(experiment)
        self.backbone = backbone or load_backbone(experiment.backbone)
        self.decode_seconds = 0.0
        self.placed = ""
        """The line that says where the images lie."""
        self._caches: dict[str, TokenCache] = {}
        self._idle: list[str] = []
        if last is not None:
            self._inherit(last)
        if not self.data.k:
            self.data.k = self._count()

    @cached_property
    def images(self) -> ImageStore:
        """Every image of the table, decoded and placed; from here on the table knows which are broken."""
        store = self._decode(self.data.table)
        self.data.table = self.data.table.with_problems(store.problem)
        check_trainable(self.data.table)
        return store

    @cached_property
    def held_out(self) -> tuple[Table, ImageStore] | None:
        """The test images, where the data set has some."""
        if self.data.test is None:
            return None
        store = self._decode(self.data.test)
        return self.data.test.with_problems(store.problem), store

    def _inherit(self, other: RunResources) -> None:
        """Take over decoded images, where only the network differs. The number of categories stays one's own: where it
        is counted, each network counts for itself."""
        mine, theirs = ((p.image_key, p.backbone.image_size) for p in (self, other))
        if mine == theirs and "images" in vars(other):
            self.data = dataclasses.replace(other.data, k=self.data.k)
            self.decode_seconds, self.placed = other.decode_seconds, other.placed
            for name in vars(other).keys() & {"images", "held_out"}:
                vars(self)[name] = vars(other)[name]

    def _decode(self, table: Table) -> ImageStore:
        started, device, folder = time.monotonic(), self.compute.device, cache_folder(self.memory)
        budget = find_budget(self.memory, device, self.taken())
        spill = SpillConfig(0 if self.choice == "disk" else budget.host, folder, budget.disk)
        store = ImageStore.decode(
            list(table.path), self.backbone.image_size, progress=self.progress, spill=spill
        )
        store, self.placed = place_pixels(store, device, self.choice, budget, folder)
        best = "host" if device.type == "cpu" else "device"
        fell = store.level not in (self.choice, best)
        log.log(logging.WARNING if fell else logging.INFO, f"{self.placed}.")
        self.decode_seconds += time.monotonic() - started
        return store

    def _count(self) -> int:
        """How many categories there are, from the backbone as it is; the same for all methods and seeds."""
        from holotype.clustering.estimate_k import estimate_table, pick_k

        source = FreshViews(self.images, Encoder(self.backbone, self.compute))
        table = self.data.table
        usable = torch.from_numpy(table.usable & one_per_burst(table)).nonzero().flatten()
        with torch.no_grad():
            features = table_features(source, usable, len(table)).float().cpu().numpy()
        found = estimate_table(table, features, "cpu", progress=self.progress)
        k = broadcast_object(pick_k(found))
        log.info(f"{found.words} Training with {k}.")
        return k

    def taken(self) -> Budget:
        """What images, held-out ones among them, and tokens hold at this moment."""
        held: list[TokenCache | ImageStore] = list(self._caches.values())
        held += [self.images] if "images" in vars(self) else []  # decoded already
        held += [self.held_out[1]] if "held_out" in vars(self) and self.held_out is not None else []
        return Budget(*(sum(each.nbytes for each in held if each.level == level) for level in LEVELS))

    def network(self) -> Backbone:
        """The backbone for one run: the frozen trunk is everybody's, the tail that learns is its own."""
        return dataclasses.replace(self.backbone, tail=copy.deepcopy(self.backbone.tail))

    def release(self) -> None:
        """Say that nobody trains on an open cache any more; it stays open until room for another is needed."""
        self._idle = list(self._caches)

    def cache(self, wanted: CacheViews, method: Method, fixed: CacheViews | None = None) -> TokenCache:
        """The token cache for a run that asks for `wanted`; a resumed run takes the views it began with.

        fixed: those views, which may be fewer than wanted where memory was short.
        """
        own = views_needed([method])
        assert own is not None  # a method that takes no views never asks for a cache
        return self._serve(wanted, own, broadcast_object(fixed))

    def _serve(self, wanted: CacheViews, own: Views, fixed: CacheViews | None = None) -> TokenCache:
        """`cache` for a run that needs the views `own`."""
        others = self._others(wanted)
        if fixed is not None and others and len(self.planned) > 1:
            # the others will need it, and mostly it holds these views
            self._serve(wanted, max(others, key=lambda views: views.strong))
        for name, cache in self._caches.items():
            enough = cache.views.strong >= own.strong
            if enough and (name == str(wanted) if fixed is None else cache_covers(cache.views, fixed)):
                self._idle = [idle for idle in self._idle if idle != name]
                return cache
        for idle in self._idle:
            del self._caches[idle]
        self._idle = []
        needs = max_views([own, *others]) if fixed is None else own
        store = self.images  # from here on the table knows which images are broken
        cache = open_cache(
            fixed or wanted,
            needs or own,
            store,
            self.backbone,
            self.compute,
            torch.from_numpy(self.data.table.usable.copy()).nonzero().flatten(),
            self.memory,
            taken=self.taken(),
            fixed=fixed is not None,
            shards=self.shards,
            progress=self.progress,
        )
        self._caches[f"{wanted}" if fixed is None else f"{fixed} fixed"] = cache
        return cache

    def _others(self, wanted: CacheViews) -> list[Views]:
        """What the planned runs that take the same cache need of it."""
        sharing = (e for e in self.planned if sharing_key(e) == self.key)
        return [needs for e in sharing if (needs := views_of(e)) and requested_views(e) == wanted]


class ResourceCache:
    """Keeps what the last run was made of, for the next one. Only the last: images take memory."""

    def __init__(
        self,
        planned: Sequence[Experiment] = (),
        *,
        data: RunData | None = None,
        backbone: Backbone | None = None,
    ) -> None:
        """planned: the runs to come, so that one cache serves all of them.

        data, backbone: what every run here is made of, whatever its experiment says of them.
        """
        self.planned, self.data, self.backbone = planned, data, backbone
        self._last: RunResources | None = None

    def get(self, experiment: Experiment, compute: Device) -> RunResources:
        """What `experiment` needs: what is there, or else anew."""
        if self._last is None or self._last.key != sharing_key(experiment):
            self._last = RunResources(
                experiment, compute, self.planned, self.data, self.backbone, last=self._last
            )
        self._last.compute, self._last.planned = compute, self.planned
        return self._last
