"""A studio of a made-up run, served in a thread; and one of a real discovery."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="the extra studio is not installed")

from holotype.cli import main
from holotype.results.discovery import write_features
from holotype.studio import live
from holotype.studio.jobs import JobContext
from holotype.studio.page import build_page
from holotype.studio.serve import Server, bind
from report.browser import browsing, chromium
from report.made import make_discovery
from studio.client import Client
from studio.window import Window

N = 60


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without rounds, of pictures beside it, with digests and features. Not to be changed."""
    folder = tmp_path_factory.mktemp("made")
    found = make_discovery(folder / "pictures", N)
    found.images["digest"] = [f"{row:032x}" for row in range(N)]
    found.save(folder / "run")
    write_features(folder / "run", np.random.default_rng(0).normal(size=(N, 8)).astype(np.float32))
    return folder / "run"


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    return Path(shutil.copytree(made, tmp_path / "run"))


@pytest.fixture(scope="session", autouse=True)
def built_here() -> Iterator[None]:
    """Pages are built in this process, which has imported all that it takes; test_process.py has them in children."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "build_in_child", lambda *words: asyncio.to_thread(build_page, *words))
        yield


@contextmanager
def serving(context: JobContext, read_only: str = "", port: int = 0) -> Iterator[Server]:
    """Serve in a thread; the server has ended when the block has."""
    with bind(port) as listener:
        server = Server(context, listener, read_only)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()
            assert not server.server_state.connections  # a browser would wait on them for ever


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Serve a run for the rest of a test."""
    with ExitStack() as stack:
        yield lambda run, **how: stack.enter_context(
            serving(JobContext(run, **how.pop("context", {})), **how)
        )


@pytest.fixture(scope="module")
def server(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Of tests that change nothing."""
    run = Path(shutil.copytree(made, tmp_path_factory.mktemp("served") / "run"))
    with serving(JobContext(run)) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(server: Server) -> Client:
    return Client(server.link).enter()


@pytest.fixture(scope="session")
def discovered(
    tmp_path_factory: pytest.TempPathFactory, squares_folder: Path, tiny_backbone_file: Path
) -> Path:
    """A real discovery of one round, of some steps, so that there are new categories. Not to be changed."""
    run = tmp_path_factory.mktemp("discovered") / "run"
    words = ["discover", str(squares_folder), "--out", str(run), "--k", "4", "--steps", "60", "--seeds", "1"]
    code = main(
        [*words, "--backbone", str(tiny_backbone_file), "--device", "cpu", "--no-progress", "--quiet"]
    )
    assert code == 0
    return run


@pytest.fixture
def discovery(discovered: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(discovered, tmp_path / "run"))


@pytest.fixture(scope="module")
def browser():
    chromium()
    with browsing() as opened:
        yield opened


@pytest.fixture
def window(browser):
    made: list[Window] = []

    def make(**settings: Any) -> Window:
        made.append(Window(browser, **settings))
        return made[-1]

    yield make
    for one in made:
        one.context.close()
    complaints = [(words, one.excused) for one in made for words in one.complaints]
    assert [words for words, excused in complaints if not any(part in words for part in excused)] == []
