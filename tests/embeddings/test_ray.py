"""A real cluster of three nodes on this machine: what falls is done again, and parts are those of the local engine."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
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
def test_no_cluster_is_joined_that_nobody_named(
    cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, meant: str
) -> None:
    def asked(address: str | None = None, **more: object) -> None:
        raise RuntimeError(f"asked for {address}")

    monkeypatch.setenv("RAY_ADDRESS", told)
    monkeypatch.setattr(ray, "init", asked)
    with (
        pytest.raises(InputError, match=f"asked for {meant}"),
        ray_session(WriteSlice(str(tmp_path)), None, 1, gpus=False),
    ):
        pass


def test_what_would_wait_for_ever_is_refused(
    cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert len([one for one in _nodes(cluster) if one["Alive"]]) == 4

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


def _nodes(cluster) -> list[dict]:
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        return ray.nodes()
    finally:
        ray.shutdown()


DRIVER = """
import sys
from holotype.embeddings.shards import existing_parts
from holotype.embeddings.executor import ray_session
from slice_jobs import WriteSlice
from pathlib import Path
address, folder, actors, seconds = sys.argv[1:]
job = WriteSlice(folder, seconds=float(seconds))
missing = [number for number in range(30) if number not in existing_parts(Path(folder))]
with ray_session(job, address, int(actors), gpus=False) as engine:
    failed = engine(missing, lambda *_: None)
print(len(missing), len(failed))
"""


def test_the_driver_is_killed_and_resumed_with_another_number_of_workers(cluster, tmp_path: Path) -> None:
    def driver(actors: int, seconds: float) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", DRIVER, cluster.address, str(tmp_path), str(actors), str(seconds)]
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
        return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)

    first = driver(2, 0.3)
    while len(parts(tmp_path)) < 5:
        assert first.poll() is None
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    kept = parts(tmp_path)
    second = driver(3, 0.0)
    out, _ = second.communicate(timeout=60)
    assert second.returncode == 0
    missing, failed = map(int, out.split())
    assert 0 < missing <= 30 - len(kept)
    assert failed == 0
    assert len(parts(tmp_path)) == 30
    assert {name: parts(tmp_path)[name] for name in kept} == kept


# -- real images ------------------------------------------------------------------------------------------


def make_tars(folder: Path) -> None:
    """Three tars of squares of 32 pixels."""
    noise = np.random.default_rng(0)
    folder.mkdir()
    for number in range(3):
        with tarfile.open(folder / f"{number}.tar", "w") as tar:
            for i in range(5):
                content = io.BytesIO()
                Image.fromarray(noise.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(content, "PNG")
                info = tarfile.TarInfo(f"{number}-{i}.png")
                info.size = content.tell()
                content.seek(0)
                tar.addfile(info, content)


def test_parts_of_a_cluster_are_those_of_one_process(
    cluster, tiny_backbone_file, holotype, tmp_path: Path
) -> None:
    """The command itself, a tar that breaks between two of them, and another number of workers."""
    make_tars(tmp_path / "tars")
    words = ["embed", tmp_path / "tars", "--backbone", tiny_backbone_file, "--device", "cpu", "--no-progress"]
    on_cluster = ["--engine", "ray", "--ray-address", cluster.address]
    outcome = holotype(*words, "--slice", 2, "--out", tmp_path / "local")
    assert outcome.code == 0, outcome.err
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
    assert outcome.code == 2
    assert "2.tar" in outcome.err
    assert outcome.err.count("\n") == 1
    assert parts(tmp_path / "ray") == now


# -- addresses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "nothing", "127.0.0.1:x", "127.0.0.1:99999999", "ray://127.0.0.1:1"]
)
def test_an_address_that_answers_nothing(
    address: str, holotype, squares_folder: Path, tiny_backbone_file: Path, tmp_path: Path
) -> None:
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
                if says is not None:
                    line.sendall(says)
                time.sleep(0.4)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(InputError, match=r"is no Ray cluster|No Ray cluster answers"):
            ray_engine._check_responds(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()
