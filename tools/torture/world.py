"""A small world to break: images, a tiny network, a finished discovery and a finished training, made once.

Every trial works on a copy at one and the same place, so that two trials that end alike are alike to the bit.
"""

from __future__ import annotations

import csv
import os
import shutil
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tests.narrow import narrow
from tools.torture.child import Ended, in_child
from tools.torture.child import holotype as command
from tools.torture.compare import Snapshot, snapshot

COLOURS = {"red": (200, 40, 40), "green": (40, 180, 60), "blue": (40, 60, 200), "yellow": (220, 200, 40)}
KNOWN = ("green", "red")
EACH = 8
SIDE = 24
TOP = Path(__file__).resolve().parents[2]
KEPT = ("run", "edited", "train", "embed", "stopped", "cache")
"""A discovery, the same after corrections and another round, a training, embeddings, a training that was stopped, and
their caches."""


@dataclass
class World:
    """Where everything lies."""

    base: Path
    short: bool = False
    """Whether this is the short form: less is made, and less is tried."""
    baselines: dict[str, Snapshot] = field(default_factory=dict)
    """What uninterrupted commands leave, by name (commands.py)."""
    broken: dict[str, list[str]] = field(default_factory=dict)
    """What is wrong with those that fail without any trouble."""
    events: dict[str, list[str]] = field(default_factory=dict)
    """The changes of files that they make, in words."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long they take."""
    sizes: dict[str, list[int]] = field(default_factory=dict)
    """Sizes of the files that they write, each once."""

    @property
    def images(self) -> Path:
        return self.base / "images"

    @property
    def listed(self) -> Path:
        """A CSV file that lists the images, their labels and the truth."""
        return self.images / "squares.csv"

    @property
    def backbone(self) -> Path:
        return self.base / "tiny.safetensors"

    @property
    def kept(self) -> Path:
        """Finished runs, of which copies are broken."""
        return self.base / "kept"

    @property
    def trial(self) -> Path:
        """The place of every trial."""
        return self.base / "trial"

    @property
    def flags(self) -> list[str]:
        return ["--device", "cpu", "--no-progress"]

    def discover(self, out: Path) -> list[str]:
        small = ["--k", "4", "--steps", "6", "--backbone", str(self.backbone)]
        return ["discover", str(self.listed), "--out", str(out), *small, *self.flags]

    def train(self, out: Path, method: str = "simgcd") -> list[str]:
        small = {"k": 4, "train.epochs": 3, "train.batch_size": 16, "backbone.name": self.backbone}
        words = [word for key, value in small.items() for word in (f"--{key}", str(value))]
        return ["train", method, str(self.listed), "--out", str(out), *words, *self.flags]

    def fresh(self, *kept: str) -> Path:
        """The place of trials, empty but for copies of these runs, an empty cache and a folder for temporary files."""
        shutil.rmtree(self.trial, ignore_errors=True)
        for name in ("cache", "tmp", "out"):
            if name not in kept:
                (self.trial / name).mkdir(parents=True)
        for name in kept:
            shutil.copytree(self.kept / name, self.trial / name, copy_function=_copy)
        return self.trial

    def run(self, words: Iterable[object], **how: object) -> Ended:
        """A command in a child that has its cache and temporary files in the place of trials."""
        work = command(*words)

        def settled() -> int:
            self.settle()
            return work()

        return in_child(settled, **how)  # type: ignore[arg-type]

    def settle(self) -> None:
        """In a child: caches and temporary files go where they are looked at, and what it starts finds the tests and
        the product that is tested, wherever the campaign was started from."""
        import tempfile

        import holotype

        given = [
            os.path.abspath(place) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place
        ]
        places = [str(TOP), str(Path(holotype.__file__).resolve().parents[1]), *given]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(places))
        os.environ["XDG_CACHE_HOME"] = str(self.trial / "cache")
        os.environ["TMPDIR"] = str(self.trial / "tmp")
        tempfile.tempdir = None
        os.chdir(self.trial)


def _copy(source: str, target: str) -> None:
    """Weights are linked, since copying them takes longer than most trials; they are never written in place."""
    if source.endswith(".safetensors"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def make_world(base: Path, short: bool = False) -> World:
    """Make it in children, and import here what they came to import: the parent never computes, so it may fork."""
    sys.dont_write_bytecode = True
    world = World(base, short)
    draw(world.images)
    _import(_modules())
    narrow()  # children are forked, so that they have it too
    in_child_or_raise(lambda: _make_backbone(world.backbone))
    world.fresh()
    world.kept.mkdir(parents=True)

    def runs() -> list[str]:
        world.settle()
        run(world.discover(world.trial / "run"))
        if not short:
            run(world.train(world.trial / "train"))
            run(
                [
                    "embed",
                    world.images,
                    "--backbone",
                    world.backbone,
                    "--out",
                    world.trial / "embed",
                    *world.flags,
                ]
            )
            run(world.train(world.trial / "stopped"), stops=True)
        return sorted(sys.modules)

    def run(words: Iterable[object], stops: bool = False) -> None:
        if stops:
            _stop_after_an_epoch()
        code = command(*words)()
        if code != (130 if stops else 0):  # 130: Ctrl-C
            raise RuntimeError(f"{words} ended with {code}")

    names = in_child_or_raise(runs)
    for name in KEPT:
        if (world.trial / name).is_dir():
            os.rename(world.trial / name, world.kept / name)
    _import(names)
    if not short:
        _make_edited(world)
    return world


def _make_edited(world: World) -> None:
    """The discovery after corrections and another round."""
    from tools.torture.commands import BY_NAME

    world.fresh("run")
    ended = world.run(BY_NAME["round"].words(world), patience=300)
    if ended.code != 0:
        raise RuntimeError(f"the world could not be made: {ended.err}")
    os.rename(world.trial / "run", world.kept / "edited")


def _stop_after_an_epoch() -> None:
    """Press Ctrl-C when the first line of metrics is about to be written."""

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and str(arguments[0]).endswith("metrics.jsonl") and not pressed:
            pressed.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    pressed: list[bool] = []
    sys.addaudithook(hear)


def in_child_or_raise(work):  # type: ignore[no-untyped-def]
    ended = in_child(work, patience=300)
    if ended.code != 0:
        raise RuntimeError(f"the world could not be made: {ended.err}")
    return ended.value


def draw(folder: Path) -> None:
    """Four classes of coloured squares, red and green known, half of each of these labelled."""
    from PIL import Image

    noise, rows = np.random.default_rng(0), []
    for name, colour in COLOURS.items():
        for number in range(EACH):
            labelled = name in KNOWN and number < EACH // 2
            path = folder / (name if labelled else "unlabelled") / f"{name}-{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.clip(np.array(colour) + noise.integers(-30, 30, (SIDE, SIDE, 3)), 0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(path)
            rows.append((path.relative_to(folder).as_posix(), name if labelled else "", name))
    with (folder / "squares.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("path", "label", "truth"), *rows])


def _make_backbone(path: Path) -> None:
    """A vision transformer with few random weights."""
    from holotype.utils import torchvision_compat

    torchvision_compat.patch_torchvision()
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    state = timm.create_model("test_vit", img_size=32, num_classes=0).state_dict()
    save_file(state, path, metadata={"timm": "test_vit", "image_size": "32"})


def _modules() -> list[str]:
    """Everything of the product, and what it always ends up with."""
    import pkgutil

    import holotype

    own = [module.name for module in pkgutil.walk_packages(holotype.__path__, "holotype.")]
    return [name for name in own if not name.endswith("__main__")] + ["timm", "pandas", "pyarrow.parquet"]


def _import(names: Iterable[str]) -> None:
    import contextlib
    import importlib

    from holotype.utils import torchvision_compat

    torchvision_compat.patch_torchvision()
    for name in names:
        if name != "__main__" and not name.startswith("tools.torture"):
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def untouched(world: World) -> Snapshot:
    """The images as they are: nothing that is tried may change them."""
    return snapshot(world.images)
