"""What reads each file of a run folder, without the rest of the command: the short way to try many spoiled files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from tests.torture.world import World


def reader(world: World, run: Path, name: str) -> Callable[[], object]:
    """What reads the file `name`, a path below the run folder."""
    last = name.rpartition("/")[2]
    if name in ("model.json", "model.safetensors"):
        return lambda: _model(run)
    if name.startswith("embeddings/"):
        return lambda: _embeddings(world, run)
    if name.startswith("report/"):
        return lambda: _report(run)
    if name in ("identity.json", "config.yaml", "count.json", "collection.parquet", "earlier.json"):
        return lambda: _go_on(world, run)
    if last in (
        "scores.json",
        "per_class.csv",
        "identity.json",
        "config.yaml",
        "cache.json",
        "metrics.jsonl",
    ):
        return lambda: _training((run / name).parent)
    if name.startswith("rounds/"):
        return lambda: _rounds(world, run)
    return lambda: _found(run)


def _found(run: Path) -> None:
    from holotype.export.results_table import read_results_table
    from holotype.results.discovery import read_features
    from holotype.results.edits import read_log
    from holotype.results.review_queue import write_queue

    results = read_results_table(run)
    read_features(run, len(results.found.images))
    read_log(run)
    write_queue(run)


def _rounds(world: World, run: Path) -> None:
    from holotype.discovery.round_diff import write_changes
    from holotype.discovery.rounds import pending_edits, replay_edits

    replay_edits(run)
    pending_edits(run)
    write_changes(run, 1)
    _go_on(world, run)


def _go_on(world: World, run: Path) -> None:
    """As `discover --dry-run` and `discover` look at a folder before they do anything."""
    from holotype.config.schema import DiscoverConfig
    from holotype.data.load import load_table
    from holotype.discovery.dry_run import preview_plan
    from holotype.discovery.ownership import claim_folder, find_folder
    from holotype.discovery.plan import plan_round

    table = load_table(world.listed)
    config = DiscoverConfig(k=4, steps=6, backbone=str(world.backbone), device="cpu")
    find_folder(run, table)
    preview_plan(plan_round(run, table, config))
    claim_folder(run, table, config)


def _model(run: Path) -> None:
    from holotype.export.assign import load_corrected
    from holotype.runs.model_io import load_model

    load_corrected(run, load_model(run, "cpu"))


def _embeddings(world: World, run: Path) -> None:
    from holotype.config.schema import BackboneConfig
    from holotype.data.load import load_table
    from holotype.embeddings.store import embed_table
    from holotype.models.backbone import load_backbone
    from holotype.utils.device import Device

    table = load_table(world.listed)
    backbone = load_backbone(BackboneConfig(str(world.backbone)))
    embed_table(table, backbone, Device.on("cpu"), run / "embeddings")


def _report(run: Path) -> None:
    """A zip is made of a report that was just built."""
    from holotype.report.thumbnails import make_thumbnails
    from holotype.results.discovery import Discovery

    paths = [str(path) for path in Discovery.load(run).images["path"]]
    make_thumbnails(paths, paths, run / "report" / "thumbs", False)


def _training(own: Path) -> None:
    from holotype.models.token_cache import CacheViews
    from holotype.report.page_data import read_scores
    from holotype.runs.identity import Identity
    from holotype.runs.record import IDENTITY_FILE, RunFolder, read_per_class
    from holotype.runs.resolve import read_settings
    from holotype.training.checkpoint import MetricsLog

    folder = RunFolder(own)
    folder.finished()
    read_scores(own)
    if (own / "cache.json").is_file():
        stored = folder.read_json("cache.json")
        with contextlib.suppress(TypeError, KeyError):  # as take_cache does, which makes a sentence of it
            CacheViews.parse(stored["views"])
    if (own / IDENTITY_FILE).is_file():
        Identity.from_dict(folder.read_json(IDENTITY_FILE), own / IDENTITY_FILE)
    if (own / "config.yaml").is_file():
        read_settings(own / "config.yaml")
    if (own / "per_class.csv").is_file():
        read_per_class(own / "per_class.csv")
    MetricsLog(own / "metrics.jsonl").rewind(10**9)
