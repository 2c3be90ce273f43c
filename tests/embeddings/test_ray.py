"""A real cluster of three nodes on this machine: what falls is done again, and parts are those of the local engine."""

import os
import signal
import socket
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotype.embeddings import executor as ray_engine
from holotype.embeddings.executor import ray_session, run_shards
from holotype.errors import InputError
from slice_jobs import WriteSlice, tried

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytestmark = [pytest.mark.ray, pytest.mark.xdist_group("ray")]
OWN_PROCESS = True

TESTS = Path(__file__).resolve().parent.parent
QUICK = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_timeout_ms": 1000}
QUICK |= {"health_check_failure_threshold": 3}
STORE = 80 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    """Three nodes with a CPU each; none of them is this process's."""
    from ray.cluster_utils import Cluster

    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # else tests that run beside these leave the workers no time
        head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
        found = Cluster(initialize_head=True, head_node_args=head | {"_system_config": QUICK})
        for _ in range(2):
            found.add_node(num_cpus=1, object_store_memory=STORE)
        yield found
        found.shutdown()
        signal.signal(signal.SIGTERM, before)  # Ray sets its own


def run(cluster, job: WriteSlice, numbers, actors: int = 2) -> tuple[dict[int, str], dict[int, int]]:
    """What failed, and what was done with its answer."""
    done: dict[int, int] = {}
    with ray_session(job, cluster.address, actors, gpus=True) as engine:
        failed = engine(numbers, done.__setitem__)
    return failed, done


def parts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


def test_slices_fail_and_workers_fall_without_harm_to_others(cluster, tmp_path: Path) -> None:
    job = WriteSlice(str(tmp_path), fails=(3,), falls=(5,))
    failed, done = run(cluster, job, range(12))
    assert sorted(failed) == [3, 5]
    assert failed[3] == "ValueError: slice 3 does not want to"
    assert failed[5].startswith(f"{ray_engine.MAX_RESTARTS} workers fell over it")
    assert done == {number: number * 10 for number in range(12) if number not in (3, 5)}
    tries = [number for number, _ in tried(tmp_path)]
    assert tries.count(5) == ray_engine.MAX_RESTARTS
    assert sorted(set(tries)) == list(range(12))
    (tmp_path / "one").mkdir()  # both engines do the same
    run_shards(WriteSlice(str(tmp_path / "one"), fails=(3, 5)), range(12), lambda *_: None)
    assert parts(tmp_path / "one") == parts(tmp_path)


@pytest.mark.parametrize(("told", "meant"), [("", "local"), ("auto", "auto")])
def test_no_cluster_is_joined_that_nobody_named(cluster, tmp_path, monkeypatch, told, meant):
    def asked(address: str | None = None, **more: object) -> None:
        raise RuntimeError(f"asked for {address}")

    monkeypatch.setenv("RAY_ADDRESS", told)
    monkeypatch.setattr(ray, "init", asked)
    session = ray_session(WriteSlice(str(tmp_path)), None, 1, gpus=False)
    with pytest.raises(InputError, match=f"asked for {meant}"), session:
        pass


def test_what_would_wait_for_ever_is_refused(cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = signal.getsignal(signal.SIGTERM)  # which Ray takes for itself, and nothing would be saved
    with ray_session(WriteSlice(str(tmp_path)), cluster.address, 1, gpus=False):
        assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(InputError, match="has room for 3 workers, a CPU each, and 4 would wait for ever"):
        run(cluster, WriteSlice(str(tmp_path)), range(3), actors=4)
    with pytest.raises(InputError, match="elsewhere is not there"):
        run(cluster, WriteSlice(str(tmp_path / "elsewhere")), range(3), actors=1)
    assert not ray.is_initialized()
    monkeypatch.setattr(ray_engine, "SECONDS_TO_START", 0.0)
    with pytest.raises(InputError, match="No worker has started in 0 s"):
        run(cluster, WriteSlice(str(tmp_path)), range(3), actors=1)


def test_a_node_is_killed_in_the_middle(cluster, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1, object_store_memory=STORE)

    def kill() -> None:
        while len(tried(tmp_path)) < 8:
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    failed, done = run(cluster, WriteSlice(str(tmp_path), seconds=0.15), range(40), actors=4)
    killer.join()
    assert failed == {}
    assert sorted(done) == list(range(40))
    assert len(parts(tmp_path)) == 40
    assert len({process for _, process in tried(tmp_path)}) >= 4


def make_tars(folder: Path) -> None:
    """Three tars of five squares of 32 pixels."""
    noise, square = np.random.default_rng(0), folder.parent / "square.png"
    folder.mkdir()
    for number in range(3):
        with tarfile.open(folder / f"{number}.tar", "w") as tar:
            for i in range(5):
                Image.fromarray(noise.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(square)
                tar.add(square, f"{number}-{i}.png")


def test_parts_of_a_cluster_are_those_of_one_process(cluster, tiny_backbone_file, holotype, tmp_path: Path):
    """The command itself, a tar that breaks between two of them, and another number of workers."""
    make_tars(tmp_path / "tars")
    words = ["embed", tmp_path / "tars", "--backbone", tiny_backbone_file, "--device", "cpu", "--no-progress"]
    on_cluster = ["--engine", "ray", "--ray-address", cluster.address]
    assert holotype(*words, "--slice", 2, "--out", tmp_path / "local").code == 0
    outcome = holotype(*words, "--slice", 2, "--out", tmp_path / "ray", *on_cluster, "--actors", 2)
    assert outcome.code == 0, outcome.err
    assert "15 images, 64 numbers each" in outcome.out
    assert len(parts(tmp_path / "ray")) == 8
    assert parts(tmp_path / "ray") == parts(tmp_path / "local")

    # one breaks after the plan was made: its images have a problem, and no other image is touched
    os.truncate(tmp_path / "tars" / "2.tar", 3000)
    for name in ("part-000001.parquet", "part-000006.parquet"):
        (tmp_path / "ray" / name).unlink()
    outcome = holotype(*words, "--out", tmp_path / "ray", *on_cluster, "--actors", 1, "--only", "1/1")
    assert outcome.code == 0, outcome.err
    assert "5 could not be read and have zeros" in outcome.out
    now, before = parts(tmp_path / "ray"), parts(tmp_path / "local")
    assert {name for name in now if now[name] == before[name]} == {f"part-00000{i}.parquet" for i in range(5)}

    # one that is broken before is told at once, and nothing is lost
    outcome = holotype(*words, "--out", tmp_path / "ray", *on_cluster)
    assert (outcome.code, "2.tar" in outcome.err, outcome.err.count("\n")) == (2, True, 1)
    assert parts(tmp_path / "ray") == now


@pytest.mark.parametrize("address", ["nothing", "127.0.0.1:x", "127.0.0.1:99999999", "ray://127.0.0.1:1"])
def test_an_address_that_answers_nothing(address, holotype, squares_folder, tiny_backbone_file, tmp_path):
    words = ["--backbone", tiny_backbone_file, "--device", "cpu", "--no-progress", "--out", tmp_path / "o"]
    outcome = holotype("embed", squares_folder, *words, "--engine", "ray", "--ray-address", address)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert f"No Ray cluster answers at {address}" in outcome.err


@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\n", None])
def test_something_else_answers(says: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """None: it takes the call and stays silent."""
    monkeypatch.setattr(ray_engine, "SECONDS_TO_ANSWER", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            line, _ = server.accept()
            with line:
                line.sendall(says or b"")
                time.sleep(0.4)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(InputError, match=r"is no Ray cluster|No Ray cluster answers"):
            ray_engine._check_responds(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()
