"""What people install: the wheel holds what it needs and no more, and the sdist makes the same wheel."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import holotype
from tests.test_repository import PACKAGE, SHIPPED, TOP

pytestmark = pytest.mark.xdist_group("package")  # one process builds it
MAX_MEGABYTES = {"wheel": 12, "sdist": 16}
SAYS_NOTHING = ("example.", "localhost", "your-", "todo", "changeme", "placeholder")


def build(source: Path, target: str, to: Path) -> Path:
    words = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(to)]
    done = subprocess.run(words, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = to.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    pytest.importorskip("hatchling", reason="hatchling builds the package: pip install -e '.[dev]'")
    return build(TOP, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    pytest.importorskip("hatchling", reason="hatchling builds the package: pip install -e '.[dev]'")
    return build(TOP, "sdist", tmp_path_factory.mktemp("sdist"))


def test_the_wheel_holds_the_package_and_its_terms(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    code = {f"holotype/{file.relative_to(PACKAGE).as_posix()}" for file in PACKAGE.rglob("*.py")}
    assert code <= names
    assert {f"holotype/{name}" for name in SHIPPED} <= names
    info = f"holotype-{holotype.__version__}.dist-info"
    assert {f"{info}/licenses/LICENSE", f"{info}/licenses/NOTICE", f"{info}/entry_points.txt"} <= names
    assert {name.split("/")[0] for name in names} == {"holotype", info}
    assert [name for name in names if "__pycache__" in name or name.endswith(".pyc")] == []


def test_files_arrive_as_they_are(wheel: Path) -> None:
    inside = zipfile.ZipFile(wheel)
    for name in SHIPPED:
        assert inside.read(f"holotype/{name}") == (PACKAGE / name).read_bytes(), name


def test_it_stays_small(wheel: Path, sdist: Path) -> None:
    for kind, file in {"wheel": wheel, "sdist": sdist}.items():
        assert 1 < file.stat().st_size / 1e6 < MAX_MEGABYTES[kind], kind


def test_what_the_wheel_says_of_itself(wheel: Path) -> None:
    info = f"holotype-{holotype.__version__}.dist-info"
    inside = zipfile.ZipFile(wheel)
    said = email.message_from_bytes(inside.read(f"{info}/METADATA"))
    assert said["Version"] == holotype.__version__
    assert said["License-Expression"] == "MIT"
    assert said["Requires-Python"] == ">=3.11"
    assert {"docs", "dev", "onnx", "figures"} <= set(said.get_all("Provides-Extra", []))
    assert "holotype = holotype.cli:main" in inside.read(f"{info}/entry_points.txt").decode()


def test_the_sdist_makes_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    again = build(source, "wheel", tmp_path / "again")
    assert again.name == wheel.name
    one, other = zipfile.ZipFile(wheel), zipfile.ZipFile(again)
    assert sorted(one.namelist()) == sorted(other.namelist())
    assert [name for name in one.namelist() if one.read(name) != other.read(name)] == []


# -- what is said beside it, which needs no build -----------------------------------------------------


def test_addresses_are_real_or_not_there() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    told = " ".join(project.get("urls", {}).values()).lower()
    assert [word for word in SAYS_NOTHING if word in told] == []
    assert "email" not in project["authors"][0]
    assert "Typing :: Typed" in project["classifiers"]


def test_the_citation_names_this_version() -> None:
    cited = yaml.safe_load((TOP / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(cited["version"]) == holotype.__version__
    assert cited["license"] == "MIT"
    assert {"cff-version", "message", "title", "authors"} <= set(cited)


def test_the_workflow_runs_what_lands() -> None:
    """Versions of the matrix begin at the oldest that the package takes, and the script is that of the repository."""
    flow = yaml.safe_load((TOP / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    linux = flow["jobs"]["linux"]
    assert linux["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert any(".ci/run" in step.get("run", "") for step in linux["steps"])
    assert flow["jobs"]["macos"]["runs-on"].startswith("macos")


def test_the_gate_runs_documents_wheel_and_tests() -> None:
    gate = (TOP / ".ci" / "run").read_text(encoding="utf-8")
    for line in ("make lint", "make docs", ".ci/wheel", "make demo", "make test"):
        assert re.search(rf"^{re.escape(line)}$", gate, re.MULTILINE), line
