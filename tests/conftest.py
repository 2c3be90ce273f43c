"""What several test folders share: a tiny network, a handful of coloured squares, the command line."""

from __future__ import annotations

import csv
import gc
import json
import os
import random
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from PIL import Image

# `make test` tries the same examples every day, and `make test-more` others and more of them. How long an example takes
# says nothing on a machine that others share.
settings.register_profile("holotype", max_examples=60, derandomize=True, database=None, deadline=None)
settings.register_profile("more", max_examples=20 * 60, database=None, deadline=None, print_blob=True)
settings.load_profile("holotype")

COLOURS = {"red": (200, 40, 40), "green": (40, 180, 60), "blue": (40, 60, 200), "yellow": (220, 200, 40)}
KNOWN = ("green", "red")
EACH = 16
"""Images of a class; half of those of a known class are labelled."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate-goldens", action="store_true", help="write the files of tests/golden anew")
    parser.addoption("--shuffle", metavar="SEED", help="run the tests in a random order")


def pytest_configure(config: pytest.Config) -> None:
    from .apart import register

    register(config)
    use_memory(config)
    config.option.loadscopereorder = (
        False  # files are handed out in the order below, not by their numbers of tests
    )


def use_memory(config: pytest.Config) -> None:
    """Write temporary files into memory where there is room: tests sync many small files, which waits on a disk."""
    shm = Path("/dev/shm")
    if "TMPDIR" in os.environ or not shm.is_dir() or shutil.disk_usage(shm).free < 8 << 30:
        return
    folder = tempfile.mkdtemp(prefix="holotype-", dir=shm)
    os.environ["TMPDIR"], tempfile.tempdir = folder, None  # worker processes inherit the variable
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    from .long_files import turn

    seed = config.getoption("shuffle")
    if seed is None:
        items.sort(key=lambda item: turn(item.path))
    else:
        random.Random(seed).shuffle(items)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was skipped and why, in one table."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)
    if reasons:
        terminalreporter.section("skipped tests, and why")
        for reason, n in reasons.most_common():
            terminalreporter.line(f"{n:5}  {reason}")


def pytest_collection_finish() -> None:
    """What thousands of tests and their imports hold stays to the end: it need not be looked through for garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Token caches and memory-mapped images of the tests, and of the processes they start, go here."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def heeded_signals() -> None:
    """As in a terminal: `nohup make test &` would have the tests, and the commands they start, ignore some signals."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.fixture(scope="session", autouse=True)
def narrow_heads() -> Iterator[int]:
    """Small heads, in this process: for the whole session, since fixtures of a session come before those of a file.

    Gives the width of the published ones.
    """
    from holotype.models import heads

    from .narrow import HIDDEN

    published = heads.HIDDEN
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heads, "HIDDEN", HIDDEN)
        yield published


@pytest.fixture(scope="session", autouse=True)
def plain_maps() -> Iterator[int]:
    """Maps by principal components, as of a handful of images, in this process: t-SNE takes a fifth of a discovery.

    Gives how many images t-SNE needs otherwise.
    """
    from holotype.report import projection

    published = projection.FEW_IMAGES
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projection, "FEW_IMAGES", 1_000_000)
        yield published


@pytest.fixture(scope="session", autouse=True)
def short_measurements() -> Iterator[None]:
    """One pass where a network's speed is measured, as every discovery does: nobody reads the time here."""
    from holotype.models import zoo

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zoo, "ENOUGH_SECONDS", 0.0)
        patch.setattr(zoo, "MIN_PASSES", 1)
        yield


@pytest.fixture(scope="module", autouse=True)
def published_heads(request: pytest.FixtureRequest, narrow_heads: int) -> Iterator[None]:
    """The published heads, for a file of tests that says PUBLISHED_HEADS = True.

    It needs them for known answers, or because a command that it starts reads what is trained here.
    """
    from holotype.models import heads

    with pytest.MonkeyPatch.context() as patch:
        if getattr(request.module, "PUBLISHED_HEADS", False):
            patch.setattr(heads, "HIDDEN", narrow_heads)
        yield


@pytest.fixture(scope="module", autouse=True)
def published_maps(request: pytest.FixtureRequest, plain_maps: int) -> Iterator[None]:
    """The published maps, for a file of tests that says PUBLISHED_MAPS = True, since it looks at them."""
    from holotype.report import projection

    with pytest.MonkeyPatch.context() as patch:
        if getattr(request.module, "PUBLISHED_MAPS", False):
            patch.setattr(projection, "FEW_IMAGES", plain_maps)
        yield


@pytest.fixture(scope="session")
def tiny_backbone_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vision transformer of two blocks and 0.1 M random weights at 32 pixels, as a local file."""
    import torch
    from safetensors.torch import save_file

    from holotype.models.zoo import patch_torchvision

    patch_torchvision()
    import timm

    settings = {"depth": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        state = timm.create_model("test_vit", img_size=32, num_classes=0, **settings).state_dict()
    path = tmp_path_factory.mktemp("backbone") / "tiny.safetensors"
    told = {"timm": "test_vit", "image_size": "32", "settings": json.dumps(settings)}
    save_file(state, path, metadata=told)
    return path


def draw_squares(root: Path) -> list[tuple[str, str, str]]:
    """Four classes of coloured squares, red and green known; returns (path, label, truth) of each image.

    root/red and root/green hold the labelled images, root/unlabelled the others.
    """
    noise, rows = np.random.default_rng(0), []
    for name, colour in COLOURS.items():
        for number in range(EACH):
            labelled = name in KNOWN and number < EACH // 2
            path = root / (name if labelled else "unlabelled") / f"{name}-{number:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.clip(np.array(colour) + noise.integers(-30, 30, (40, 40, 3)), 0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(path)
            rows.append((str(path.relative_to(root)), name if labelled else "", name))
    return rows


def write_csv(path: Path, header: str, rows: list[tuple[str, ...]]) -> Path:
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([header.split(","), *rows])
    return path


@pytest.fixture(scope="session")
def squares_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 coloured squares in folders by label, and squares.csv with their truth. Not to be changed."""
    root = tmp_path_factory.mktemp("squares")
    write_csv(root / "squares.csv", "path,label,truth", draw_squares(root))
    return root


@pytest.fixture(scope="session")
def tiny_flags(tiny_backbone_file: Path) -> list[str]:
    """Flags that make a training run a matter of a second."""
    flags = {
        "backbone.name": tiny_backbone_file,
        "k": 4,
        "train.epochs": 1,
        "train.batch_size": 16,
        "device": "cpu",
    }
    return [word for key, value in flags.items() for word in (f"--{key}", str(value))] + ["--no-progress"]


@dataclass
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def holotype(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """The command line, in this process."""
    from holotype.cli import main

    def call(*words: object) -> Outcome:
        capsys.readouterr()
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
