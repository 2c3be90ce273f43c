"""What a run says of itself: scores by hand, a record that survives a file and nothing less for one, its provenance."""

import dataclasses
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import holotype
from holotype.clustering.metrics import score
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.methods import Prediction
from holotype.models.backbone import Backbone
from holotype.runs import record as module
from holotype.runs.experiment import resolve
from holotype.runs.identity import Identity
from holotype.runs.record import AssignedCounts, Record, Records, RunFolder, RunMeta, Scores
from holotype.runs.run import run_experiment
from holotype.training.checkpoint import MetricsLog
from holotype.utils.device import Device
from holotype.utils.serialization import read_json
from tests.made_study import made_identity, made_record
from tests.training.conftest import world as world  # the fixture of the folder train

TOP = Path(__file__).resolve().parents[2]
NOTHING = Scores(None, None, None, None, 0)


def table_of(label: list[str], problem: list[str] | None = None, **more: Any) -> Table:
    path = np.array([f"{i}.png" for i in range(len(label))], dtype=object)
    labels, problem = np.array(label, dtype=object), problem or [""] * len(label)
    return Table(path, labels, ("a", "b"), problem=problem, **more)


@pytest.fixture(scope="module")
def trained(world):
    loop = world.loop("kmeans", k=5)
    return loop, loop.fit()


def test_scores_with_and_without_truth(world, trained) -> None:
    nowhere = torch.full((3,), float("nan"))
    said = Prediction(torch.tensor([0, 1, 2]), nowhere, nowhere)
    found = module.score_table(table_of(["a", "b", ""]), said)
    assert found == (NOTHING, [])
    module.check_law(NOTHING, "")
    scores, classes = module.score_table(world.table, trained[1])
    told = score(world.table, trained[1].category.numpy(), trained[1].known_score.numpy())
    assert told == vars(scores) | {"per_class": classes}


def test_a_record_says_what_was_run_and_how_it_was_scored(tiny, squares_folder) -> None:
    found, how = (record := run_experiment(tiny(seed=3, label="no-new"))).identity, record.made
    assert (found.method["name"], found.data["name"]) == ("simgcd", "squares")
    assert (found.seed, found.views) == (3, "off")
    assert (found.backbone["name"], found.backbone["train_blocks"]) == ("tiny", 1)
    assert (found.train["precision"], found.data["k"], found.train["epochs"]) == ("fp32", 4, 1)
    assert (how.variant, how.mode, how.captured) == ("no-new", "exact", {"train": False})
    assert (how.processes, how.parallel, how.cache_seconds, how.epochs) == (1, 1, 0.0, 1)
    r = record.scores.share_old
    assert (record.scores.n, r, record.test) == (48, 1 / 3, None)
    assert record.scores.all == pytest.approx(r * record.scores.old + (1 - r) * record.scores.new, abs=1e-12)
    assert record.placed.known + record.placed.novel == 48
    assert record.key == (found.hash, 3)
    assert read_json(tiny().folder / "scores.json") == record.as_dict()
    # epochs are those of all stages, and a folder without truth has no scores
    stub = "tests.training.stubs:TwoStages"
    other = run_experiment(tiny(stub, "other", train__epochs=9, dataset=squares_folder))
    assert (other.made.epochs, other.scores, other.made.variant) == (2 + 1, NOTHING, "default")


def whole() -> Record:
    """A record in which nothing is missing."""
    identity = made_identity(resolve("rpc", "cub"))
    record = made_record(identity, 60, 50, captured={"train": True}, decode_seconds=2.5)
    scores = dataclasses.replace(record.scores, nmi=0.5, ari=0.25, auroc=0.75, known_accuracy=1)
    return dataclasses.replace(record, scores=scores, test=scores, placed=AssignedCounts(1, 2, 3, 4))


def leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of everything in an object of objects, groups included."""
    for key, value in tree.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))


def copy_and_holder(path: tuple[str, ...]) -> tuple[dict, dict]:
    content = json.loads(json.dumps(whole().as_dict()))
    holder = content
    for key in path[:-1]:
        holder = holder[key]
    return content, holder


def optional_keys(part: str, kind: type) -> set[tuple[str, str]]:
    fields = dataclasses.fields(kind)
    return {(part, field.name) for field in fields if field.default is not dataclasses.MISSING}


OPTIONAL = {("test",), ("made", "captured", "train"), *optional_keys("made", RunMeta)}
OPTIONAL |= optional_keys("scores", Scores) | optional_keys("test", Scores)
"""Keys that came later, or may come: a record without them says the default."""


def fits_there(path: tuple[str, ...], before: Any, wrong: Any) -> bool:
    """Values that the field may have; All, Old and New are bound to each other."""
    number, part, name = type(wrong) in (int, float), path[0], path[-1]
    if path == ("identity", "seed"):
        return type(wrong) is int  # the file's name says it as well
    if path in (("placed",), ("test",)):
        return wrong is None
    if path == ("made", "captured"):
        return wrong is True or wrong == {}  # true or false in older records
    if len(path) != 2 or part == "identity":
        return False
    if part in ("scores", "test") and name != "n":
        return name not in ("all", "old", "new", "share_old") and (number or wrong is None)
    return type(wrong) is type(before) or (type(before) is float and number)


def refused(content: Any) -> None:
    with pytest.raises(InputError, match=r"^x\.json ") as caught:
        Record.from_dict(content, "x.json")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("path", list(leaves(whole().as_dict())), ids=".".join)
def test_a_record_that_lacks_something_or_has_something_else_is_refused(path: tuple[str, ...]) -> None:
    """Everything of another kind, and in the identity everything that is not what it was."""
    content, holder = copy_and_holder(path)
    del holder[path[-1]]
    if path in OPTIONAL:
        assert Record.from_dict(content, "x.json").identity == whole().identity
    else:
        refused(content)
    for wrong in (None, True, 3, -2.5, "x", "", [], [1], {}, {"a": 1}, float("nan")):
        content, holder = copy_and_holder(path)
        before, holder[path[-1]] = holder[path[-1]], wrong
        if wrong != before and not fits_there(path, before, wrong):
            refused(content)


def test_what_is_no_record_is_refused() -> None:
    unknown, holder = copy_and_holder(("scores", "all"))
    holder["accuracy"] = 0.5
    late = whole().as_dict() | {"restarts": [{"stage": "train", "epoch": "late", "back_to": 1, "rate": 1}]}
    for content in (None, [], "x", 3, {}, {"scores": {}}, {"format": 1}, {"format": [2]}, unknown, late):
        refused(content)


def test_all_follows_from_old_and_new() -> None:
    for lawful in ((0.525, 0.6, 0.5, 0.25), (0.6, 0.6, None, 1.0), (0.5, None, 0.5, 0.0)):
        module.check_law(Scores(*lawful, 9), "x.json")
    wrong = [(0.525 + 1e-8, 0.6, 0.5, 0.25), (0.5, None, 0.5, 0.5), (float("nan"), 0.6, 0.5, 0.25)]
    for unlawful in (*wrong, (None, 0.6, 0.5, 0.25)):
        with pytest.raises(InputError, match=r"x\.json says All = .* imply"):
            module.check_law(Scores(*unlawful, 9), "x.json")


def record(seed: int = 0, new: float = 50) -> Record:
    return made_record(made_identity(resolve("rpc", "cub", overrides={"seed": seed})), 60, new)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_record_is_written_under_its_name_and_comes_back(tmp_path: Path) -> None:
    one, other = record(), record(3)
    records = Records(tmp_path)
    (tmp_path / "speed.json").write_text("{}")  # files of other kinds are nobody's business
    assert records.by_key == {}
    assert records.add(one) == tmp_path / "runs" / f"{one.identity.hash}-s0.json" == records.path(one.key)
    records.add(other)
    assert records.by_key == Records(tmp_path).by_key == {one.key: one, other.key: other}
    assert module.read_record(records.path(one.key)) == one
    lines = [json.dumps(record(1).as_dict()), json.dumps({"name": "h200", "parts": {}})]
    (tmp_path / "kept.jsonl").write_text("\n".join(lines) + "\n")
    assert len(Records(tmp_path).by_key) == 3
    (tmp_path / "kept.jsonl").write_text("{")
    with pytest.raises(InputError, match=r"kept\.jsonl"):
        _ = Records(tmp_path).by_key
    assert len(Records(TOP / "experiments" / "results").by_key) > 400  # those of the repository


def test_a_second_record_of_one_run_must_say_the_same(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.add(record())
    before = files(tmp_path)
    with pytest.raises(InputError, match=r"contradicts .*all 0\.525 and 0\.5325"):
        records.add(record(new=51))
    assert files(tmp_path) == before
    records.add(dataclasses.replace(record(), made=dataclasses.replace(record().made, seconds=9.0)))
    module.check_agree(record(), None, "")
    module.check_agree(None, record(), "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda told: told["scores"].update(all=0.54), "says All = 0.54 where its Old and New imply 0.525"),
        (lambda told: told["identity"]["train"].update(epochs=7), "hash of its own identity"),
        (lambda told: told.update(hash="0" * 16), "hash of its own identity"),
        (lambda told: told["identity"].update(seed=5), "holds the record of"),
        (lambda told: told.update(format=1), "is no record of format 2"),
        (lambda told: told.clear(), "is no record of format 2"),
    ],
)
def test_a_record_that_was_changed_by_hand_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    content = json.loads(json.dumps(record().as_dict()))
    change(content)
    file = tmp_path / "runs" / f"{record().identity.name}.json"
    file.parent.mkdir()
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match=said):
        _ = Records(tmp_path).by_key
    for text in ("", json.dumps(content)[:-9]):
        file.write_text(text)
        with pytest.raises(InputError, match="cannot be read"):
            _ = Records(tmp_path).by_key


def identity(**changes: object) -> Identity:
    named = {key.replace("__", "."): value for key, value in changes.items()}
    return made_identity(resolve("rpc", "cub", overrides={"cache_views": "16+8"}), named)


def test_a_run_is_finished_when_its_scores_are_there(tmp_path) -> None:
    folder = RunFolder(tmp_path / "not" / "there")
    assert folder.finished() is None
    made = made_record(identity(), 100 * (0.1 + 0.2), 50, variant="Vögel “a”")
    folder.finish(made)
    assert folder.finished() == made
    for wrong in ('{"all": 0.', "{}"):
        (folder.path / "scores.json").write_text(wrong)
        with pytest.raises(InputError, match=r"scores\.json (cannot be read|is no record)"):
            folder.finished()
    with pytest.raises(InputError, match="choose another --out"):
        folder.read_json("absent.json")


def test_rewinding_a_log_drops_what_came_after_the_state_and_what_is_not_ours(tmp_path) -> None:
    metrics = MetricsLog(tmp_path / "deep" / "metrics.jsonl")
    metrics.rewind(5)  # nothing there, nothing to do
    assert not metrics.path.exists()
    for counter in (3, 6, 6, 9):
        metrics.append(kind="epoch", counter=counter, stage="vögel", loss=0.1 + 0.2)
    whole = metrics.path.read_bytes().splitlines()[:3]
    with metrics.path.open("ab") as file:
        file.write(b'5\n[1]\nnull\n{"counter": "two"}\n\xff\xfe\n[\n{"kind": "epoch", "counter": 1')
    metrics.rewind(6)
    assert metrics.path.read_bytes().splitlines() == whole


@pytest.fixture
def elsewhere(tmp_path, monkeypatch) -> Iterator[Path]:
    """The code as if it lay in tmp_path."""
    for name in ("HOLOTYPE_COMMIT", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "record.py").write_text("first\n")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "record.py"))
    module.commit.cache_clear()
    yield tmp_path
    module.commit.cache_clear()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_is_that_of_the_code_with_a_sign_if_it_was_changed(elsewhere, monkeypatch) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
        how: dict[str, Any] = {"check": True, "capture_output": True, "text": True}
        found = subprocess.run(["git", *who, *words], cwd=elsewhere, **how)
        return found.stdout.strip()

    def at_start() -> str:
        module.commit.cache_clear()
        return module.commit()

    assert at_start() == ""  # outside a checkout
    git("init", "-q")
    assert at_start() == ""  # in a checkout, but not of it: an installed package in somebody's project
    git("add", "record.py")
    git("commit", "-q", "-m", "first")
    first = git("rev-parse", "HEAD")[:12]
    assert at_start() == first
    (elsewhere / "record.py").write_text("second\n")
    assert module.commit() == first, "the code that runs was loaded before"
    assert at_start() == first + "+"
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: os.stat("no git"))
    assert at_start() == ""
    monkeypatch.setenv("HOLOTYPE_COMMIT", "abc123")
    assert at_start() == "abc123"


def test_provenance_names_what_a_number_depends_on_and_nothing_that_is_hidden(elsewhere, monkeypatch) -> None:
    monkeypatch.setenv("HOLOTYPE_COMMIT", "abc123")
    assert re.fullmatch(r"[1-9]\d* CPU cores?", module.hardware(torch.device("cpu")))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    assert module.hardware(torch.device("cuda", 0), 4) == "4 x NVIDIA H200"
    assert module.hardware(torch.device("mps")) == f"{platform.machine()} mps"
    monkeypatch.setattr("sys.argv", ["/some/where/holotype", "train", "simgcd", "/data/cub"])
    part = torch.nn.Identity()
    backbone = Backbone(part, part, 8, 32, (0.5,) * 3, (0.5,) * 3, "tiny", "a" * 64, "too small")
    truth = np.array(["wren", "hoopoe", "robin", "shrike", "wren", "wren"], dtype=object)
    table = table_of(["a", "", "b", "", "", "a"], ["", "", "", "x", "", "x"], truth=truth, name="birds")
    for precision in ("fp32", "bf16", "fp64"):
        found = module.describe_provenance(backbone, table, Device.on("cpu", precision))
        assert found["precision"] == precision
    assert (found["holotype"], found["commit"]) == (holotype.__version__, "abc123")
    assert found["command"] == "holotype train simgcd cub"
    assert {"torch", "timm", "numpy", "scipy", "scikit-learn", "pillow"} <= set(found["versions"])
    assert found["backbone"] == {"name": "tiny", "digest": "a" * 64, "caveat": "too small"}
    counts = {"name": "birds", "images": 6, "labelled": 3, "unreadable": 2}
    assert found["table"] == {**counts, "fingerprint": table.fingerprint()}
    assert not any(name in json.dumps(found) for name in ("hoopoe", "shrike"))
    licensed = dataclasses.replace(backbone, changes={"pool": "token"}, licence="dinov3-license")
    told = module.describe_provenance(licensed, table, Device.on("cpu"))["backbone"]
    assert (told["pool"], told["licence"]) == ("token", "dinov3-license")
    assert "passes on its terms" in told["terms"]
    free = module.describe_provenance(dataclasses.replace(backbone, licence="mit"), table, Device.on("cpu"))
    assert free["backbone"] == found["backbone"] | {"licence": "mit"}
