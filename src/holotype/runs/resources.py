"""What runs are made of: table, method, backbone, decoded images, token cache.

Each part is made when it is first asked for and kept while runs need the same, so that a sweep over methods and
seeds decodes once and runs the frozen trunk once.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from holotype.clustering.knn import nearest_neighbours
from holotype.config.schema import ProtocolConfig
from holotype.data.arrays import read_side
from holotype.data.bursts import one_per_burst
from holotype.data.datasets.registry import BENCHMARKS, Benchmark, load_benchmark
from holotype.data.decode import DecodedImages
from holotype.data.gcd_split import as_benchmark, gcd_split, held_out, hidden, hold_out, with_known
from holotype.data.image_store import ImageStore, SpillConfig, VectorStore, place_pixels
from holotype.data.load import check_trainable, load_table
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.losses.ops import l2_normalize
from holotype.methods import Method, Task, find_method
from holotype.methods.base import Views
from holotype.models.backbone import Backbone, load_backbone
from holotype.models.token_cache import CacheViews, TokenCache
from holotype.runs.experiment import Experiment, build_on_meta, stages_of
from holotype.training.build_token_cache import open_cache
from holotype.training.encoder import Encoder, Unregistered
from holotype.training.views import FreshViews, check_cacheable, table_features
from holotype.utils.device import Device, pick_device
from holotype.utils.distributed import broadcast_object, rank
from holotype.utils.memory import LEVELS, Budget, cache_folder, find_budget
from holotype.utils.processes import launch, process_count
from holotype.utils.serialization import FileSchema

AUTO_VIEWS = CacheViews(4, 2)
"""Of the cache on a CPU, where running the trunk in every step is out of the question."""

VIEWS_FILE = "cache.json"
"""Names the views that a run trains on, so that a resumed run takes the same."""
VIEWS_SCHEMA = FileSchema(1, "restore it from a copy, or choose another --out")

NEIGHBOURS = 5
"""Of a vector, from which its views are made."""

log = logging.getLogger(__name__)


@dataclass
class RunData:
    """What a run is trained and scored on."""

    table: Table
    k: int
    """Number of categories; 0 until it has been estimated."""
    test: Table | None = None


def load_data(experiment: Experiment) -> RunData:
    """Load the table under the protocol for a benchmark, or as it stands for a collection of one's own."""
    protocol, whole = experiment.protocol, None
    if experiment.dataset in BENCHMARKS:
        whole = load_benchmark(experiment.dataset, Path(experiment.root) if experiment.root else None)
    else:
        labels = Path(experiment.labels) if experiment.labels else None
        table = load_table(experiment.dataset, labels)
        whole = as_benchmark(table) if protocol.draws_labels else None
    if whole is not None:
        data = split_data(whole, protocol)
    else:
        data = RunData(table, 0)
        if protocol.test_share:
            data.table, rows = hold_out(table, protocol.test_share, protocol.split_seed)
            data.test = hidden(table.take(rows), table.known)
    if experiment.side is not None:
        data.table = dataclasses.replace(data.table, side=read_side(Path(experiment.side), data.table))
    check_trainable(data.table)
    if protocol.inductive and not (data.test is not None and len(data.test)):
        raise InputError(f"{experiment.dataset} has no test images to score; set protocol.test_share.")
    data.k = 0 if experiment.k == "auto" else experiment.k or data.k
    if not data.k and experiment.k != "auto":
        raise InputError(f"The number of categories of {experiment.dataset} is unknown; give --k N or auto.")
    if data.k:
        check_k(data.k, data.table, experiment.dataset)
    return data


def split_data(benchmark: Benchmark, protocol: ProtocolConfig) -> RunData:
    """Return labelled, unlabelled and test images of a benchmark."""
    if protocol.known is not None:
        benchmark = with_known(benchmark, Path(protocol.known))
    k, test = len(benchmark.known) + len(benchmark.novel), held_out(benchmark)
    if protocol.test_share:
        train, rows = hold_out(benchmark.train, protocol.test_share, protocol.split_seed)
        test = hidden(benchmark.train.take(rows), benchmark.known)
        benchmark = dataclasses.replace(benchmark, train=train)
    share, seed = protocol.label_share, protocol.split_seed
    return RunData(gcd_split(benchmark, share=share, seed=seed, stratified=protocol.stratified), k, test)


def check_k(k: int, table: Table, name: str) -> None:
    """Raise InputError where known classes alone are more than k, or k is more than there are images."""
    if k < len(table.known):
        raise InputError(f"--k {k} is smaller than the {len(table.known)} known classes of {name}; raise it.")
    if k > len(table):
        raise InputError(f"--k {k} is more than the {len(table)} images of {name}; lower it.")


def build_method(experiment: Experiment, data: RunData, backbone: Backbone) -> Method:
    """Build the method with fresh heads, drawn from torch's generator."""
    table = data.table
    task = Task(
        n_known=len(table.known),
        k=data.k,
        dim=backbone.dim,
        n_images=len(table),
        n_labelled=int(table.labelled.sum()),
        epochs=experiment.train.epochs,
        side=0 if table.side is None else table.side.shape[1],
    )
    return find_method(experiment.method_name)(experiment.method, task)


def check_fits(experiment: Experiment, data: RunData, backbone: Backbone) -> list[str]:
    """Raise InputError where the method cannot be trained on the data, or with the network; before anything is
    computed. Returns what it has to say of its settings."""

    if data.table.features is not None and not learns_from_vectors(experiment.method_name, experiment):
        raise InputError(
            f"{experiment.method_name} trains on images, and {data.table.name or 'the table'} holds vectors; use "
            "rpc, uno, simgcd or another method on tokens."
        )

    def build() -> list[str]:
        method = build_method(experiment, data, backbone)
        said = method.check()
        if type(method).build_encoder is not Method.build_encoder:
            method.build_encoder(Unregistered(backbone.trunk), copy.deepcopy(backbone.tail))
        return said

    return build_on_meta(build)


def learns_from_vectors(method: str, experiment: Experiment) -> bool:
    """Return whether a method needs no more of a network than features."""
    own_encoder = find_method(method).build_encoder is not Method.build_encoder
    return not own_encoder and all(stage.needs == "tokens" for stage in stages_of(experiment))


def max_views(views: Sequence[Views]) -> Views | None:
    """Return as many weak and strong views as the greediest of them takes; None of none."""
    return Views(weak=max(v.weak for v in views), strong=max(v.strong for v in views)) if views else None


def views_of(experiment: Experiment) -> Views | None:
    """Return the most views that a step takes from tokens; None where no stage trains on tokens."""
    return max_views([stage.views for stage in stages_of(experiment) if stage.cacheable])


def drop_unusable_cache(experiment: Experiment) -> Experiment:
    """Return the same in exact mode where views are asked for by number and every stage takes images: of a sweep over
    many methods, one that cannot use the cache runs without it."""
    by_number, stages = experiment.cache_views not in ("auto", "off"), stages_of(experiment)
    if by_number and stages and views_of(experiment) is None:
        return dataclasses.replace(experiment, cache_views="off")
    return experiment


def with_views(experiment: Experiment) -> Experiment:
    """Return the same with the number of views that auto means on the device."""
    if experiment.cache_views != "auto":
        return experiment
    return dataclasses.replace(experiment, cache_views=str(requested_views(experiment) or "off"))


def requested_views(experiment: Experiment) -> CacheViews | None:
    """Return the token cache that a run asks for, None for exact mode. auto: 4+2 on a CPU, off elsewhere.

    Raises InputError where views are asked for by number and every stage takes images.
    """
    asked = experiment.cache_views
    if asked not in ("auto", "off"):
        check_cacheable(stages_of(experiment), experiment.method_name)
    if asked == "off" or views_of(experiment) is None:
        return None
    if asked == "auto":
        return AUTO_VIEWS if pick_device(experiment.device) == "cpu" else None
    return CacheViews.parse(asked)


def effective_views(experiment: Experiment, wanted: CacheViews | None) -> CacheViews | None:
    """Return the views of a token cache that the run draws from: no strong ones where the method asks for none.

    A cache may hold them for the sake of other runs, and a run is the same alone and in a sweep.
    """
    needs = views_of(experiment)
    if wanted is None or needs is None:
        return None
    return wanted if needs.strong else CacheViews(wanted.weak, 0)


def make_device(experiment: Experiment) -> Device:
    """Return where the run computes, once all its processes are there."""
    device, processes = pick_device(experiment.device), process_count(experiment.devices)
    here = int(os.environ.get("LOCAL_WORLD_SIZE", processes))  # a launcher may spread them over machines
    if device.startswith("cuda") and here > (n_gpus := torch.cuda.device_count()):
        raise InputError(f"--devices {processes} is more than the {n_gpus} GPUs here; use --device cpu.")
    if device.startswith("cuda:") and processes > 1:
        raise InputError(f"--device {device} names one GPU for {processes} processes; use --device cuda.")
    launch(processes, "nccl" if device.startswith("cuda") else "gloo")
    return Device.on(device, experiment.precision)


def sharing_key(experiment: Experiment) -> tuple[str, str]:
    """Return what is equal for runs that can share everything here; its first part, for those that can share images of
    the same size."""
    data = [experiment.dataset, experiment.root, experiment.labels, experiment.k, experiment.protocol]
    data += [experiment.side]
    place = [experiment.store, pick_device(experiment.device), experiment.devices, experiment.memory]
    network = [experiment.backbone, experiment.precision, experiment.train.shards, reads_patches(experiment)]
    return repr([data, place]), repr(network)


def reads_patches(experiment: Experiment) -> bool:
    """Return whether the tail must give the tokens of patches."""
    return find_method(experiment.method_name).patches


class RunResources:
    """A data set and a backbone, made ready for runs."""

    def __init__(self, experiment: Experiment, compute: Device, shelf: ResourceCache | None = None) -> None:
        """shelf: of what the run before was made, whose decoded images are taken over where they are the same."""
        shelf = shelf or ResourceCache()
        self.experiment, self.compute, self.planned = experiment, compute, shelf.planned
        self.decoded, self.by_content = shelf.decoded, shelf.by_content
        self.key = sharing_key(experiment)
        self.data = shelf.data or load_data(experiment)
        self.backbone = shelf.backbone or load_backbone(
            experiment.backbone, patches=reads_patches(experiment)
        )
        self.decode_seconds = 0.0
        self.placed = ""
        """The line that says where the images lie."""
        self._caches: dict[str, TokenCache] = {}
        self._idle: list[str] = []
        if shelf.last is not None:
            self._inherit(shelf.last)
        if not self.data.k:
            self.data.k = self._count()

    @cached_property
    def images(self) -> ImageStore | VectorStore:
        """Every image of the table, decoded and placed; from here on the table knows which are broken."""
        if self.data.table.features is not None:
            return self._vectors(self.data.table)
        store = self._decode(self.data.table)
        self.data.table = self.data.table.with_problems(store.problem)
        check_trainable(self.data.table, classes=2 if stages_of(self.experiment) else 0)
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
        mine, theirs = ((p.key[0], p.backbone.image_size) for p in (self, other))
        if mine == theirs and "images" in vars(other):
            self.data = dataclasses.replace(other.data, k=self.data.k)
            self.decode_seconds, self.placed = other.decode_seconds, other.placed
            for name in vars(other).keys() & {"images", "held_out"}:
                vars(self)[name] = vars(other)[name]

    def _vectors(self, table: Table) -> VectorStore:
        assert table.features is not None
        x = torch.from_numpy(table.features.copy()).to(self.compute.device)
        _, neighbour = nearest_neighbours(x, min(NEIGHBOURS, len(x) - 1))
        self.placed = f"{len(table):,} vectors of {x.shape[1]:,} numbers"
        return VectorStore(l2_normalize(x).cpu(), neighbour.cpu(), table.problem)

    def _decode(self, table: Table) -> ImageStore:
        memory, choice, device = self.experiment.memory, self.experiment.store, self.compute.device
        started, folder = time.monotonic(), cache_folder(memory)
        budget = find_budget(memory, device, self.taken())
        spill = SpillConfig(0 if choice == "disk" else budget.host, folder, budget.disk)
        size, progress = self.backbone.image_size, self.experiment.progress
        paths = list(table.path)
        store = ImageStore.decode(paths, size, progress=progress, spill=spill, decoded=self.decoded)
        store, self.placed = place_pixels(store, device, choice, budget, folder)
        fell = store.level not in (choice, "host" if device.type == "cpu" else "device")
        log.log(logging.WARNING if fell else logging.INFO, f"{self.placed}.")
        self.decode_seconds += time.monotonic() - started
        return store

    def _count(self) -> int:
        """Count the categories by the backbone as it is; the same for all methods and seeds."""
        from holotype.clustering.estimate_k import estimate_table

        assert isinstance(self.images, ImageStore)  # whoever brings vectors has counted
        source = FreshViews(self.images, Encoder(self.backbone, self.compute))
        table = self.data.table
        usable = torch.from_numpy(table.usable & one_per_burst(table)).nonzero().flatten()
        with torch.no_grad():
            features = table_features(source, usable, len(table)).float().cpu().numpy()
        found = estimate_table(table, features, "cpu", progress=self.experiment.progress)
        k = broadcast_object(found.best)
        log.info(f"{found.words} Training with {k}.")
        return k

    def taken(self) -> Budget:
        """Return what images, held-out ones among them, and tokens hold at this moment."""
        held: list[TokenCache | ImageStore | VectorStore] = list(self._caches.values())
        held += [self.images] if "images" in vars(self) else []  # decoded already
        held += [self.held_out[1]] if "held_out" in vars(self) and self.held_out is not None else []
        return Budget(*(sum(each.nbytes for each in held if each.level == level) for level in LEVELS))

    def with_labels(self, table: Table | None) -> RunResources:
        """Return the same images and caches with the labels of another table of them; itself where there is none."""
        if table is None:
            return self
        problem = self.images.problem  # from here on the table knows which are broken
        other = copy.copy(self)
        other.data = RunData(table.with_problems(problem), self.data.k)
        return other

    def network(self) -> Backbone:
        """Return the backbone for one run: the frozen trunk is everybody's, the tail that learns is its own."""
        return dataclasses.replace(self.backbone, tail=copy.deepcopy(self.backbone.tail))

    def release(self) -> None:
        """Say that nobody trains on an open cache any more; it stays open until room for another is needed."""
        self._idle = list(self._caches)

    def take_cache(
        self, experiment: Experiment, wanted: CacheViews, folder: Path
    ) -> tuple[TokenCache, CacheViews | None]:
        """Return the cache of a run, and the views it draws from, which are written down in its folder: a run that goes
        on takes those it began with."""
        stages, name = stages_of(experiment), experiment.method_name
        some, others = (
            " and ".join(s.name for s in stages if s.needs == kind) for kind in ("tokens", "images")
        )
        if others:
            log.info(f"Of {name}, {some} draws from the token cache, and {others} takes images.")
        fixed, needs, file = None, views_of(experiment), folder / VIEWS_FILE
        assert needs is not None  # a method that takes no views never asks for a cache
        if file.exists():
            try:
                fixed = CacheViews.parse(str(VIEWS_SCHEMA.read(file).get("views")))
            except InputError as error:
                raise VIEWS_SCHEMA.broken(file, "it does not say which views the run trained on") from error
        cache = self.cache(wanted, needs, fixed)
        views = effective_views(experiment, cache.views)
        if fixed is None and rank() == 0:
            VIEWS_SCHEMA.write(file, {"views": str(views)})
        return cache, views

    def cache(self, wanted: CacheViews, needs: Views, fixed: CacheViews | None = None) -> TokenCache:
        """Return the token cache for a run that asks for `wanted` and takes the views `needs` in a step.

        fixed: the views that a resumed run began with, which may be fewer than wanted where memory was short.
        """
        fixed = broadcast_object(fixed)
        sharing = (e for e in self.planned if sharing_key(e) == self.key and requested_views(e) == wanted)
        others = [views for e in sharing if (views := views_of(e))]
        if fixed is not None and others and len(self.planned) > 1:
            # the others will need it, and mostly it holds these views
            self.cache(wanted, max(others, key=lambda views: views.strong))
        for name, cache in self._caches.items():
            whole, weak = cache.views, CacheViews(cache.views.weak, 0)
            # who began without strong ones never sees them
            same = name == str(wanted) if fixed is None else fixed in (whole, weak)
            if same and whole.strong >= needs.strong:
                self._idle = [idle for idle in self._idle if idle != name]
                return cache
        for idle in self._idle:
            del self._caches[idle]
        self._idle = []
        store = self.images  # from here on the table knows which images are broken
        assert isinstance(store, ImageStore)  # no cache is asked for of vectors
        cache = open_cache(
            fixed or wanted,
            needs if fixed else max_views([needs, *others]) or needs,
            store,
            self.backbone,
            self.compute,
            torch.from_numpy(self.data.table.usable.copy()).nonzero().flatten(),
            self.experiment.memory,
            taken=self.taken(),
            fixed=fixed is not None,
            shards=self.experiment.train.shards,
            by_content=self.by_content,
            progress=self.experiment.progress,
        )
        self._caches[f"{fixed} fixed" if fixed else str(wanted)] = cache
        return cache


@dataclass
class ResourceCache:
    """Keeps what the last run was made of, for the next one. Only the last: images take memory."""

    planned: Sequence[Experiment] = ()
    """The runs to come, so that one cache serves all of them."""
    data: RunData | None = None
    """What every run here is made of, whatever its experiment says; so is the backbone."""
    backbone: Backbone | None = None
    decoded: DecodedImages | None = None
    """Images of these data that were read already."""
    by_content: bool = False
    """Whether the data change from run to run, and token caches are to outlive that (open_cache)."""
    last: RunResources | None = None

    def get(self, experiment: Experiment) -> RunResources:
        """Return what `experiment` needs: what is there, or else anew; and start its processes."""
        compute = make_device(experiment)
        if self.last is None or self.last.key != sharing_key(experiment):
            self.last = RunResources(experiment, compute, self)
        self.last.compute, self.last.planned = compute, self.planned
        return self.last
