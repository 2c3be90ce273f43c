"""What several test folders share: a tiny network, a handful of coloured squares, the command line."""

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
EACH = 16  # images of a class; half of those of a known class are labelled


LONGEST = """utils/test_processes examples/test_notebooks studio/test_folder_journey
studio/test_journey test_torture cli/test_every_method
training/test_loop clustering/test_estimate_k training/test_processes report/test_browser discovery/test_year
docs/test_pages report/test_browser_keyboard cli/test_devices discovery/test_plan benchmarks/test_speed
report/test_browser_edits models/test_hub discovery/test_pipeline data/test_storage runs/test_settings
training/test_every_method training/test_step benchmarks/test_whole_run"""
"""Files of tests, longest first; one that is not here takes fewer than ten seconds."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate-goldens", action="store_true", help="write the files of tests/golden anew")
    parser.addoption("--shuffle", metavar="SEED", help="run the tests in a random order")


def pytest_configure(config: pytest.Config) -> None:
    from .apart import register

    register(config)
    use_memory(config)
    config.option.loadscopereorder = False  # files are handed out in the order below, not by numbers of tests


def use_memory(config: pytest.Config) -> None:
    """Write temporary files into memory where there is room: tests sync many small files, which waits on a disk."""
    shm = Path("/dev/shm")
    if "TMPDIR" in os.environ or not shm.is_dir() or shutil.disk_usage(shm).free < 8 << 30:
        return
    folder = tempfile.mkdtemp(prefix="holotype-", dir=shm)
    os.environ["TMPDIR"], tempfile.tempdir = folder, None  # worker processes inherit the variable
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The files that take longest begin, so that no process is left alone with one in the end."""
    seed, here = config.getoption("shuffle"), Path(__file__).parent
    if seed is None:
        turn = {here / f"{name}.py": number for number, name in enumerate(LONGEST.split())}
        items.sort(key=lambda item: turn.get(item.path, len(turn)))
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
def small_sizes() -> Iterator[tuple[int, int]]:
    """Small heads, maps by principal components (t-SNE takes a fifth of a discovery), and one pass where a network's
    speed is measured, in this process: for the whole session, since its fixtures come before those of a file.

    Gives the published width of heads, and how many images t-SNE needs.
    """
    from holotype.models import heads, zoo
    from holotype.report import projection

    from .narrow import HIDDEN

    published = heads.HIDDEN, projection.FEW_IMAGES
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heads, "HIDDEN", HIDDEN)
        patch.setattr(projection, "FEW_IMAGES", 1_000_000)
        patch.setattr(zoo, "ENOUGH_SECONDS", 0.0)
        patch.setattr(zoo, "MIN_PASSES", 1)
        yield published


@pytest.fixture(scope="module", autouse=True)
def published_sizes(request: pytest.FixtureRequest, small_sizes: tuple[int, int]) -> Iterator[None]:
    """Those of a file of tests that says PUBLISHED_HEADS = True or PUBLISHED_MAPS = True.

    It needs them for known answers, or because a command that it starts reads what is trained here.
    """
    from holotype.models import heads
    from holotype.report import projection

    with pytest.MonkeyPatch.context() as patch:
        if getattr(request.module, "PUBLISHED_HEADS", False):
            patch.setattr(heads, "HIDDEN", small_sizes[0])
        if getattr(request.module, "PUBLISHED_MAPS", False):
            patch.setattr(projection, "FEW_IMAGES", small_sizes[1])
        yield


def write_backbone(path: Path) -> Path:
    """A vision transformer of two blocks and 0.1 M random weights at 32 pixels."""
    import torch
    from safetensors.torch import save_file

    from holotype.models.zoo import import_timm

    settings = {"depth": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        state = import_timm().create_model("test_vit", img_size=32, num_classes=0, **settings).state_dict()
    metadata = {"timm": "test_vit", "image_size": "32", "settings": json.dumps(settings)}
    save_file(state, path, metadata=metadata)
    return path


@pytest.fixture(scope="session")
def tiny_backbone_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_backbone(tmp_path_factory.mktemp("backbone") / "tiny.safetensors")


def draw_squares(root: Path, each: int = EACH, side: int = 40) -> list[tuple[str, str, str]]:
    """Four classes of coloured squares, red and green known; returns (path, label, truth) of each image.

    root/red and root/green hold the labelled images, root/unlabelled the others.
    """
    noise, rows = np.random.default_rng(0), []
    for name, colour in COLOURS.items():
        for number in range(each):
            labelled = name in KNOWN and number < each // 2
            path = root / (name if labelled else "unlabelled") / f"{name}-{number:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.clip(np.array(colour) + noise.integers(-30, 30, (side, side, 3)), 0, 255)
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
    flags = {"backbone.name": tiny_backbone_file, "k": 4, "device": "cpu"}
    flags |= {"train.epochs": 1, "train.batch_size": 16}
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
