"""Where a number comes from: the commit, the hardware and the versions, and nothing that is hidden."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
from importlib.metadata import version

import numpy as np
import pytest
import torch

import holotype
from holotype.data.table import Table
from holotype.models.backbone import Backbone
from holotype.runs import provenance
from holotype.runs.provenance import commit, describe_provenance, hardware
from holotype.utils.device import Device

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """The code as if it lay in tmp_path."""
    monkeypatch.delenv("HOLOTYPE_COMMIT", raising=False)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "provenance.py").write_text("first\n")
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "provenance.py"))
    provenance._commit_of.cache_clear()
    return tmp_path


def git(folder, *words: str) -> str:
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false"]
    found = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True)
    return found.stdout.strip()


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("/data/of/somebody/birds.csv", "birds.csv"),
        ("~/birds/", "birds"),
        (r"C:\Users\somebody\birds", "birds"),
        ("--out=/data/somebody/run", "--out=run"),
        ("/", "/"),
        *((word, word) for word in ("birds/owl", "--k", "12", "cub", "--lr=1e-3", "my.module:Mine")),
    ],
)
def test_a_command_does_not_tell_whose_folders_it_was_given(word: str, told: str) -> None:
    assert provenance.strip_folders(word) == told


def test_the_commit_can_be_named(monkeypatch):
    monkeypatch.setenv("HOLOTYPE_COMMIT", "abc123")
    assert commit() == "abc123"


@needs_git
def test_the_commit_is_that_of_the_code_with_a_sign_if_it_was_changed(elsewhere):
    def at_start() -> str:
        provenance._commit_of.cache_clear()
        return commit()

    git(elsewhere, "init", "-q")
    assert at_start() == ""  # in a checkout, but not of it: an installed package in somebody's project
    git(elsewhere, "add", "provenance.py")
    git(elsewhere, "commit", "-q", "-m", "first")
    first = git(elsewhere, "rev-parse", "HEAD")[:12]
    assert at_start() == first
    (elsewhere / "provenance.py").write_text("second\n")
    assert commit() == first, "the code that runs was loaded before"
    assert at_start() == first + "+"


def test_outside_a_checkout_there_is_no_commit(elsewhere):
    assert commit() == ""


def test_without_git_there_is_no_commit(elsewhere, monkeypatch):
    def missing(*_, **__):
        raise FileNotFoundError("git")

    monkeypatch.setattr(provenance.subprocess, "run", missing)
    assert commit() == ""


def test_hardware_in_words(monkeypatch):
    assert re.fullmatch(r"[1-9]\d* CPU cores?", hardware(torch.device("cpu")))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    assert hardware(torch.device("cuda")) == "1 x NVIDIA H200"
    assert hardware(torch.device("cuda", 0), 4) == "4 x NVIDIA H200"
    monkeypatch.setattr(provenance.platform, "machine", lambda: "arm64")
    assert hardware(torch.device("mps")) == "arm64 mps"


# -- the facts ----------------------------------------------------------------------------------------

TABLE = Table(
    path=np.array([f"{i}.png" for i in range(6)], dtype=object),
    label=np.array(["wren", "", "robin", "", "", "wren"], dtype=object),
    known=("robin", "wren"),
    truth=np.array(["wren", "hoopoe", "robin", "shrike", "wren", "wren"], dtype=object),
    problem=np.array(["", "", "", "it is broken", "", "it is broken"], dtype=object),
    name="birds",
)
BACKBONE = Backbone(
    torch.nn.Identity(), torch.nn.Identity(), 8, 32, (0.5,) * 3, (0.5,) * 3, "tiny", "a" * 64, "too small"
)


def facts(table: Table = TABLE, precision: str = "fp32") -> dict:
    compute = Device.on("cpu", precision)
    return describe_provenance(BACKBONE, table, compute)


def test_pool_and_licence_are_told_where_there_is_something_to_tell():
    def of(**changes):
        return describe_provenance(dataclasses.replace(BACKBONE, **changes), TABLE, Device.on("cpu"))[
            "backbone"
        ]

    told = of(changes={"pool": "token"}, licence="dinov3-license")
    assert (told["pool"], told["licence"]) == ("token", "dinov3-license")
    assert "passes on its terms" in told["terms"]
    assert of(licence="mit") == of() | {"licence": "mit"}


def test_facts_name_what_a_number_depends_on(monkeypatch):
    monkeypatch.setenv("HOLOTYPE_COMMIT", "abc123")
    monkeypatch.setattr("sys.argv", ["/some/where/holotype", "train", "simgcd", "cub"])
    found = facts()
    assert found["holotype"] == holotype.__version__
    assert found["commit"] == "abc123"
    assert found["command"] == "holotype train simgcd cub"
    assert {"torch", "timm", "numpy", "scipy", "scikit-learn", "pillow"} <= set(found["versions"])
    assert all(found["versions"][name] == version(name) for name in found["versions"])
    assert found["hardware"] == hardware(torch.device("cpu"))
    assert found["processes"] == 1
    assert found["matmul"] == torch.get_float32_matmul_precision()
    assert found["backbone"] == {"name": "tiny", "digest": "a" * 64, "caveat": "too small"}
    counts = {"name": "birds", "images": 6, "labelled": 3, "unreadable": 2}
    assert found["table"] == {**counts, "fingerprint": TABLE.fingerprint()}
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp64"])
def test_facts_name_the_precision_in_use(precision):
    assert facts(precision=precision)["precision"] == precision


def test_facts_hold_nothing_of_the_hidden_classes():
    text = json.dumps(facts())
    assert not any(name in text for name in ("hoopoe", "shrike"))
    assert facts() == facts(dataclasses.replace(TABLE, truth=None))


def test_another_label_is_another_fingerprint():
    other = dataclasses.replace(TABLE, label=np.array(["", "", "robin", "", "wren", "wren"], dtype=object))
    assert facts(other)["table"]["fingerprint"] != facts()["table"]["fingerprint"]
