"""Executor flags of `embed` and `assign`: local or Ray, shards, progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from holotype.cli.common import Parser, echo, is_rank0_output, typed_argument
from holotype.config.types import Count
from holotype.errors import InputError

if TYPE_CHECKING:
    from holotype.embeddings.executor import Executor
    from holotype.embeddings.shards import ShardFolder

LOCAL_EXECUTOR, RAY_EXECUTOR = "local", "ray"
SMALL_SHARD = 512
"""Images of a slice on a CPU of this machine: a stop loses at most one slice, and a large network takes a minute for
this one."""


def add_executor_flags(parser: Parser) -> None:
    parser.add_argument(
        "--engine",
        choices=(LOCAL_EXECUTOR, RAY_EXECUTOR),
        help="where to compute the slices: local, in this process (default), or ray, on a Ray cluster "
        "(pip install 'holotype[ray]')",
    )
    parser.add_argument(
        "--ray-address",
        metavar="ADDR",
        help="with --engine ray: host:port of the cluster, or auto for the cluster of this machine (default: "
        "RAY_ADDRESS, or else a new cluster on this machine)",
    )
    parser.add_argument(
        "--actors",
        type=typed_argument("--actors", Count),
        metavar="N",
        help="with --engine ray: number of workers, each with a GPU if there are any (default: all that fit)",
    )
    parser.add_argument(
        "--only",
        metavar="I/N",
        help="do only every N-th slice, starting with the I-th, for example in a Slurm array; other jobs may work in "
        "the same folder at once",
    )
    parser.add_argument(
        "--slice",
        type=typed_argument("--slice", Count),
        metavar="IMAGES",
        help="images per slice, at most 4,096, for a new folder (default: 512 on a CPU of this machine, else 4,096)",
    )


def wants_shards(given: Any) -> bool:
    """Does one of the flags make sense for slices alone?"""
    return any((given.engine, given.only, given.ray_address, given.actors, given.slice))


def check_executor_flags(given: Any) -> None:
    """Raise InputError for what cannot be, before anything is read."""
    from holotype.embeddings.executor import shard_of_process
    from holotype.embeddings.shards import IMAGES_PER_PLAN_SHARD

    if given.only is not None:
        shard_of_process(given.only)
    if given.engine != RAY_EXECUTOR and (given.ray_address or given.actors):
        flag = "--ray-address" if given.ray_address else "--actors"
        raise InputError(f"{flag} says nothing without --engine ray; add it, or leave {flag} out.")
    if given.slice and given.slice > IMAGES_PER_PLAN_SHARD:
        raise InputError(
            f"--slice {given.slice} is more than {IMAGES_PER_PLAN_SHARD:,} images; give a smaller number."
        )
    if given.engine == RAY_EXECUTOR:
        from holotype.embeddings.executor import check_installed

        check_installed()


def shard_size(given: Any) -> int:
    """Images of a slice of a new folder."""
    from holotype.embeddings.shards import IMAGES_PER_PLAN_SHARD
    from holotype.utils.device import pick_device

    if given.slice:
        return int(given.slice)
    local = given.engine != RAY_EXECUTOR and pick_device(given.device) == "cpu"
    return SMALL_SHARD if local else IMAGES_PER_PLAN_SHARD


def run_sharded(folder: ShardFolder, job: Any, given: Any, title: str, add: Callable[[Any], None]) -> int:
    """Do the slices of a folder; add: is given what the job returns of each. Returns the exit code.

    Ctrl-C raises Stopped; the same command goes on.
    """
    from holotype.cli import DONE, NOT_WELL
    from holotype.training.progress import StopRequest
    from holotype.utils.console import progress_bar

    images = 0
    with StopRequest() as stop, progress_bar(title, folder.own_images, not given.no_progress) as bar:

        def advance(more: int) -> None:
            nonlocal images
            images += more
            bar(more)
            if stop.requested:
                stop.leave(f"image {images:,} of {folder.own_images:,}")

        def told(number: int, answer: Any) -> None:
            add(answer)
            if given.engine == RAY_EXECUTOR:
                advance(answer.n)

        with _make_executor(job, given, advance) as engine:
            failed = folder.run(engine, told)
    if failed and is_rank0_output():
        echo(folder.sentence(failed), error=True)
    return NOT_WELL if failed else DONE


@contextmanager
def _make_executor(job: Any, given: Any, advance: Callable[[int], None]) -> Iterator[Executor]:
    """What does the slices. advance: of this process, where the job may tell how far it is within a slice."""
    if given.engine == RAY_EXECUTOR:
        from holotype.embeddings.executor import ray_session

        with ray_session(job, given.ray_address, given.actors, gpus=given.device != "cpu") as engine:
            yield engine
    else:
        from holotype.embeddings.executor import run_shards

        yield partial(run_shards, partial(job, advance=advance))
