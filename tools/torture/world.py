"""A small world to break: images, a tiny network, finished runs, and the commands that are tried on copies of them.

Every trial works on a copy at one and the same place, so that two trials that end alike are alike to the bit.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import importlib
import json
import os
import pkgutil
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import draw_squares, write_backbone, write_csv
from tests.narrow import narrow
from tools.torture.harness import Ended, Strike, Watch, in_child

TOP = Path(__file__).resolve().parents[2]
KEPT = ("run", "edited", "train", "embed", "stopped", "cache")
"""A discovery, the same after corrections and another round, a training, embeddings, a training that was stopped, and
their caches."""
Snapshot = dict[str, str]  # path below a folder to the digest of the content; of a link, where it leads


@dataclass
class World:
    """Where everything lies."""

    base: Path
    short: bool = False  # whether this is the short form: less is made, and less is tried
    baselines: dict[str, Snapshot] = field(default_factory=dict)  # what uninterrupted commands leave, by name
    broken: dict[str, list[str]] = field(default_factory=dict)
    """What is wrong with those that fail without any trouble."""
    events: dict[str, list[str]] = field(default_factory=dict)
    """The changes of files that they make, in words."""
    seconds: dict[str, float] = field(default_factory=dict)  # how long they take
    sizes: dict[str, list[int]] = field(default_factory=dict)  # sizes of the files that they write, each once
    flags: tuple[str, ...] = ("--device", "cpu", "--no-progress")

    def __post_init__(self) -> None:
        self.images, self.backbone = self.base / "images", self.base / "tiny.safetensors"
        self.listed = self.images / "squares.csv"
        self.kept, self.trial = self.base / "kept", self.base / "trial"
        """Finished runs, of which copies are broken; the place of every trial."""

    def fresh(self, *kept: str) -> Path:
        """The place of trials, empty but for copies of these runs, an empty cache and a folder for temporary files."""
        shutil.rmtree(self.trial, ignore_errors=True)
        for name in {"cache", "tmp", "out"} - set(kept):
            (self.trial / name).mkdir(parents=True)
        for name in kept:
            shutil.copytree(self.kept / name, self.trial / name, copy_function=_copy)
        return self.trial

    def run(self, words: Iterable[object], **how: Any) -> Ended:
        """A command in a child that has its cache and temporary files in the place of trials."""
        work = holotype(*words)

        def settled() -> int:
            self.settle()
            return work()

        return in_child(settled, **how)

    def settle(self) -> None:
        """In a child: caches and temporary files go where they are looked at, and what it starts finds the tests and
        the product that is tested, wherever the campaign was started from."""
        import holotype

        given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        places = [
            TOP,
            Path(holotype.__file__).resolve().parents[1],
            *map(os.path.abspath, filter(None, given)),
        ]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(map(str, places)))
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


def holotype(*words: object) -> Callable[[], int]:
    """A command, as work for a child."""

    def work() -> int:
        from holotype.cli import main

        given = [str(word) for word in words]
        sys.argv = ["holotype", *given]
        # what the further processes of a run are started with: heads as small as here
        told = "import sys; from tests.narrow import narrow; narrow(); from holotype.cli import main; sys.exit(main())"
        sys.orig_argv = [sys.executable, "-c", told, *given]
        return main(given)

    return work


@dataclass(frozen=True)
class Command:
    """A command, and the runs that must be there before it."""

    name: str
    line: str  # its words: {run}, {out}, {images}, ... stand for places of the world.
    kept: tuple[str, ...] = ("run",)
    ends: tuple[int, ...] = (0, 2)  # exit codes that are an answer to a failing disk

    def words(self, world: World) -> list[str]:
        places = {name: getattr(world, name) for name in ("images", "listed", "backbone", "trial", "base")}
        places |= {"run": world.trial / "run", "out": world.trial / "out"}
        return [word.format(**places) for word in self.line.split()]


CPU = "--device cpu --no-progress"
SMALL = "--k 4 --train.epochs 3 --train.batch_size 16 --backbone.name {backbone}"
TRAIN = f"train simgcd {{listed}} --out {{run}} {SMALL} {CPU}"
DISCOVER = f"discover {{listed}} --out {{run}} --k 4 --steps 6 --backbone {{backbone}} {CPU}"
EDITS = "--edits {base}/edits.csv"
WRITE = "--overwrite --no-progress"
SETS = "k=4 train.epochs=1 train.batch_size=16 backbone.name={backbone} device=cpu"
BENCH = "--datasets {listed} --methods kmeans,simgcd --seeds 0 --out {run} --results {out} --no-progress"
COMMANDS = (
    Command("report", f"report {{run}} {CPU}"),
    Command("edits", f"report {{run}} {CPU} {EDITS}"),
    Command("first-report", f"report {{trial}}/train {CPU}", ("train",)),
    Command("zip", f"report {{run}} {CPU} --overwrite --zip {{out}}/mail.zip"),
    Command(
        "assign",
        f"assign {{run}} {{images}} --out {{out}}/new.csv --copy-to {{out}}/sorted --overwrite {CPU}",
    ),
    Command("folders", f"write {{run}} --folders {{out}}/folders {WRITE}"),
    Command("copies", f"write {{run}} --folders {{out}}/folders --copy {WRITE}"),
    Command("labels", f"write {{run}} --labels {{out}}/labels.csv --all {WRITE}"),
    Command("coco", f"write {{run}} --coco {{out}}/coco.json {WRITE}"),
    Command("camtrap", f"write {{run}} --camtrap-dp {{out}}/package --copy {WRITE}"),
    Command("embed", f"embed {{images}} --backbone {{backbone}} --out {{run}} {CPU}", (), (0, 2, 3)),
    Command("estimate-k", f"estimate-k {{images}} --backbone {{backbone}} --out {{run}} {CPU}", ()),
    Command("train", TRAIN, ()),
    Command("discover", DISCOVER, ()),
    Command("round", f"{DISCOVER} {EDITS}"),
    Command("bench", f"bench {BENCH} {' '.join(f'--set {one}' for one in SETS.split())}", ()),
)
"""Of embed, 3: slices failed, and are listed."""
BY_NAME = {command.name: command for command in COMMANDS}


def baseline(world: World, command: Command) -> list[str]:
    """Run it once without any trouble and remember what it leaves; a sentence for everything wrong with that."""
    name = command.name
    if name not in world.baselines:
        world.fresh(*command.kept)
        started = time.time() - 0.1
        ended = tried(world, command)
        # copies bear the time of what they are copies of
        files = [path.stat() for path in world.trial.rglob("*") if path.is_file() and not path.is_symlink()]
        world.sizes[name] = sorted({f.st_size for f in files if f.st_mtime >= started and f.st_size})
        value = ended.value or {}
        problems = ended.troubles(0) + value.get("outside", [])
        world.baselines[name], world.events[name] = snapshot(world.trial), value.get("seen", [])
        world.seconds[name] = ended.seconds
        world.broken[name] = [f"without any trouble, {name} {problem}" for problem in problems]
    return list(world.broken[name])


def tried(world: World, command: Command, watch: Watch | None = None, strike: Strike | None = None) -> Ended:
    """The command in a child under watch, in the place of trials as it stands."""
    work, seen = holotype(*command.words(world)), watch or Watch()
    handled = {strike.signal} if strike and strike.signal != signal.SIGKILL else set()
    for sign in handled:
        seen.held_back = sign

    def watched() -> dict[str, object]:
        world.settle()
        seen.install_in(str(world.trial))
        code = work()
        return {"code": code, "seen": seen.seen, "outside": seen.outside, "refused": seen.refused}

    signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    ended = in_child(watched, strike=strike)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
    if ended.code == 0 and isinstance(ended.value, dict):
        ended.code = ended.value["code"]
    return ended


def goes_on(world: World, command: Command) -> list[str]:
    """After trouble: the same command ends with 0 and leaves what an uninterrupted one does."""
    again = tried(world, command)
    problems = [f"afterwards {problem}" for problem in again.troubles(0)]
    problems += [f"{change} is outside" for change in (again.value or {}).get("outside", [])]
    return problems + differences(world.baselines[command.name], snapshot(world.trial))


def make_world(base: Path, short: bool = False) -> World:
    """Make it in children, and import here what they came to import: the parent never computes, so it may fork."""
    sys.dont_write_bytecode = True
    world = World(base, short)
    write_csv(world.images / "squares.csv", "path,label,truth", draw_squares(world.images, 8, 24))
    import holotype as package

    own = [module.name for module in pkgutil.walk_packages(package.__path__, "holotype.")]
    _import([name for name in own if not name.endswith("__main__")] + ["timm", "pandas", "pyarrow.parquet"])
    narrow()  # children are forked, so that they have it too
    _in_child(lambda: write_backbone(world.backbone))
    world.fresh()
    world.kept.mkdir(parents=True)

    def make(line: str, out: str, code: int = 0) -> None:
        words = Command("", line).words(world)
        words[words.index("--out") + 1] = str(world.trial / out)
        if holotype(*words)() != code:
            raise RuntimeError(f"{words} did not end with {code}")

    def runs() -> list[str]:
        world.settle()
        make(DISCOVER, "run")
        if not short:
            make(TRAIN, "train")
            make(BY_NAME["embed"].line, "embed")
            _stop_after_an_epoch()
            make(TRAIN, "stopped", 130)
        return sorted(sys.modules)

    names = _in_child(runs)
    for name in KEPT:
        if (world.trial / name).is_dir():
            os.rename(world.trial / name, world.kept / name)
    _import(names)
    # here, since a child that made it would write elsewhere than it may
    (base / "edits.csv").write_text(_in_child(lambda: _edits_text(world.kept / "run")), encoding="utf-8")
    if not short:
        world.fresh("run")
        ended = world.run(BY_NAME["round"].words(world), patience=300)
        if ended.code != 0:
            raise RuntimeError(f"the world could not be made: {ended.err}")
        os.rename(world.trial / "run", world.kept / "edited")
    return world


def _in_child(work: Callable[[], Any]) -> Any:
    ended = in_child(work, patience=300)
    if ended.code != 0:
        raise RuntimeError(f"the world could not be made: {ended.err}")
    return ended.value


def _edits_text(run: Path) -> str:
    """Corrections of every kind, made in the report of the kept discovery."""
    from holotype.results.discovery import Discovery
    from holotype.results.edits import Edit, edits_csv

    found = Discovery.load(run)
    novel = [category.id for category in found.categories if category.kind == "novel"]
    paths = [str(path) for path in found.images["path"] if "blue" in path or "yellow" in path]
    rows = [("confirm", path, "", "sea") for path in paths[:3]]
    rows += [("move", paths[4], "", "green"), ("reject", paths[5], "", "")]
    rows += [("rename", "", id, f"called {id}") for id in novel[:1]]
    return edits_csv(Edit(found.run_id, f"2026-01-01T00:00:{i:02d}Z", *row) for i, row in enumerate(rows))


def _stop_after_an_epoch() -> None:
    """Press Ctrl-C when the first line of metrics is about to be written."""
    pressed: list[bool] = []

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and str(arguments[0]).endswith("metrics.jsonl") and not pressed:
            pressed.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    sys.addaudithook(hear)


def _import(names: Iterable[str]) -> None:
    from holotype.models.zoo import patch_torchvision

    patch_torchvision()
    for name in names:
        if name != "__main__" and not name.startswith("tools.torture"):
            with contextlib.suppress(Exception):
                importlib.import_module(name)


RUN_ID = re.compile(r"\b[0-9a-f]{12}-\d+\b")
"""What a round is called (discovery/round_runner.py); that of a training is made from its identity."""
CLOCK = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.:+Z-]*")
ROOM = re.compile(r"room for [\d.]+ \w?B")  # how much memory or disk happened to be free
TIMED = re.compile(r"(^|_)seconds$|^(time|started|finished|run_id|pid|host|check)$")
"""Keys whose values differ from run to run; check: the checksum of such values."""
TEXT = (".html", ".csv", ".yaml", ".md", ".txt")


def snapshot(folder: Path) -> Snapshot:
    """Everything below a folder, empty folders too."""
    found: Snapshot = {}
    for where, folders, names in os.walk(folder):
        below = os.path.relpath(where, folder)
        if not folders and not names:
            found[below + os.sep] = ""
        for name in names:
            found[os.path.normpath(os.path.join(below, name))] = digest(Path(where, name))
    return found


def digest(path: Path) -> str:
    """Of the content, without times and random names."""
    if path.is_symlink():
        return f"-> {os.readlink(path)}"
    content = path.read_bytes()
    with contextlib.suppress(ValueError):  # also UnicodeDecodeError
        content = _plain(path, content)
    return hashlib.sha256(content).hexdigest()[:16]


def _plain(path: Path, content: bytes) -> bytes:
    ending = path.suffix
    if path.name == ".holotype-folders.json":  # with the times of the files
        return json.dumps(sorted(json.loads(content)["files"])).encode()
    if ending == ".json":
        return json.dumps(_timeless(json.loads(content))).encode()
    if ending == ".jsonl":
        return json.dumps(_timeless([json.loads(line) for line in content.decode().splitlines()])).encode()
    if ending == ".js":
        _, mark, rest = content.decode().partition("{")
        return json.dumps(_timeless(json.loads((mark + rest).rstrip(";\n ")))).encode()
    if ending == ".csv" and b"seconds" in content.split(b"\n", 1)[0]:
        head, *rows = csv.reader(content.decode().splitlines())
        kept = [i for i, name in enumerate(head) if not TIMED.search(name)]
        return _words("\n".join("|".join(row[i] for i in kept) for row in (head, *rows))).encode()
    return _words(content.decode()).encode() if ending in TEXT else content


def _words(text: str) -> str:
    return ROOM.sub("", CLOCK.sub("T", RUN_ID.sub("R", text)))


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {_words(key): _timeless(inner) for key, inner in value.items() if not TIMED.search(key)}
    if isinstance(value, list):
        return [_timeless(inner) for inner in value]
    return _words(value) if isinstance(value, str) else value


def differences(wanted: Snapshot, found: Snapshot) -> list[str]:
    """A sentence for every file that is missing, left over or other than it should be."""
    told = [f"{path} is missing" for path in sorted(wanted.keys() - found.keys())]
    told += [f"{path} was left behind" for path in sorted(found.keys() - wanted.keys())]
    both = sorted(path for path in wanted.keys() & found.keys() if wanted[path] != found[path])
    return told + [f"{path} differs" for path in both]
