"""What people install: the wheel holds what it needs and no more, and the sdist makes the same wheel."""

import email
import hashlib
import json
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import holotype
from tests.test_repository import PACKAGE, SHIPPED, TOP

pytestmark = pytest.mark.xdist_group("package")  # one process builds it
MAX_MEGABYTES = {"wheel": 12, "sdist": 16}


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


def test_the_wheel_holds_the_package_and_its_terms(wheel: Path, sdist: Path) -> None:
    inside, info = zipfile.ZipFile(wheel), f"holotype-{holotype.__version__}.dist-info"
    names = set(inside.namelist())
    code = {f"holotype/{file.relative_to(PACKAGE).as_posix()}" for file in PACKAGE.rglob("*.py")}
    assert code | {f"holotype/{name}" for name in SHIPPED} <= names
    assert {f"{info}/licenses/LICENSE", f"{info}/licenses/NOTICE", f"{info}/entry_points.txt"} <= names
    assert {name.split("/")[0] for name in names} == {"holotype", info}
    assert [name for name in names if "__pycache__" in name or name.endswith(".pyc")] == []
    for name in SHIPPED:
        assert inside.read(f"holotype/{name}") == (PACKAGE / name).read_bytes(), name
    for kind, file in {"wheel": wheel, "sdist": sdist}.items():
        assert 1 < file.stat().st_size / 1e6 < MAX_MEGABYTES[kind], kind
    said = email.message_from_bytes(inside.read(f"{info}/METADATA"))
    facts = {"Version": holotype.__version__, "License-Expression": "MIT", "Requires-Python": ">=3.11"}
    assert {key: said[key] for key in facts} == facts
    assert {"docs", "dev", "onnx", "figures"} <= set(said.get_all("Provides-Extra", []))
    assert "holotype = holotype.cli:main" in inside.read(f"{info}/entry_points.txt").decode()


def test_the_sdist_makes_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Debian 12 has Python 3.11.2
        archive.extractall(tmp_path / "source", **safe)
    (source,) = (tmp_path / "source").iterdir()
    again = build(source, "wheel", tmp_path / "again")
    assert again.name == wheel.name
    one, other = zipfile.ZipFile(wheel), zipfile.ZipFile(again)
    assert sorted(one.namelist()) == sorted(other.namelist())
    assert [name for name in one.namelist() if one.read(name) != other.read(name)] == []


def test_citation_container_and_workflow() -> None:
    """The matrix begins at the oldest Python that the package takes."""
    cited = yaml.safe_load((TOP / "CITATION.cff").read_text(encoding="utf-8"))
    assert (str(cited["version"]), cited["license"]) == (holotype.__version__, "MIT")
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    copied = re.findall(r"^COPY (.+) \S+$", (TOP / "Containerfile").read_text(encoding="utf-8"), re.MULTILINE)
    parts = {"pyproject.toml", "README.md", "LICENSE", "NOTICE", "bill.cdx.json", "src"}  # of a wheel
    assert parts <= set(" ".join(copied).split())
    flow = yaml.safe_load((TOP / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    linux = flow["jobs"]["linux"]
    assert linux["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert any(".ci/run" in step.get("run", "") for step in linux["steps"])
    release = yaml.safe_load((TOP / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert release["publish"]["permissions"] == {"id-token": "write"}  # trusted publishing, without a token
    assert release["build"]["permissions"]["attestations"] == "write"
    assert "USER holotype" in (TOP / "Containerfile").read_text(encoding="utf-8")


def requirements(*extras: str) -> list[Requirement]:
    """What the package, and these of its extras, ask for; an extra that names another of ours is followed."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = list(project["dependencies"])
    for extra in extras:
        texts += project["optional-dependencies"][extra]
    found = [Requirement(text) for text in texts]
    own = [other for one in found if one.name == "holotype" for other in one.extras]
    return [one for one in found if one.name != "holotype"] + (requirements(*own) if own else [])


def locked() -> dict[str, tuple[str, list[str]]]:
    """Version and hashes of every package of the lock file, as the bill of materials reads them."""
    return runpy.run_path(str(TOP / ".ci" / "bill.py"))["locked"]()


def test_the_lock_holds_all_that_development_installs() -> None:
    lock = locked()
    assert len(lock) > 50
    assert [name for name, (_, hashes) in lock.items() if not hashes] == []
    for wanted in requirements("dev", "docs"):
        version, _ = lock[canonicalize_name(wanted.name)]
        assert wanted.specifier.contains(version), f"{wanted}: .ci/lock makes the lock anew"
    assert "://" not in (TOP / "requirements.lock").read_text(encoding="utf-8")


def test_the_constraints_are_the_locked_versions() -> None:
    """The lock does not fit every system: elsewhere the same versions are installed, and those of torch for CUDA."""
    lines = (TOP / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    beside = {name: pins.pop(name) for name in list(pins) if re.match("cuda|nvidia|triton", name)}
    assert pins == {name: version for name, (version, _) in locked().items()}, ".ci/lock makes them anew"
    assert "triton" in beside


def test_the_oldest_versions_are_the_lower_bounds() -> None:
    lines = [line for line in (TOP / "oldest.txt").read_text().splitlines() if line[:1].isalpha()]
    pinned = {one.name: Version(str(one.specifier)[2:]) for one in map(Requirement, lines)}
    parts = {one.name: [part for part in one.specifier if part.operator == ">="] for one in requirements()}
    assert pinned == {name: Version(part.version) for name, (part,) in parts.items()}


def test_private_interfaces_have_an_upper_bound() -> None:
    code = "\n".join(file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py"))
    assert re.search(r"\btorch\._[a-zA-Z]", code)  # else the bound may go
    for wanted in requirements():
        if wanted.name in ("torch", "torchvision", "timm"):
            assert any(part.operator == "<" for part in wanted.specifier), wanted


def test_the_bill_names_what_is_locked_and_carried(wheel: Path) -> None:
    text = (TOP / "bill.cdx.json").read_bytes()
    info = f"holotype-{holotype.__version__}.dist-info"
    assert zipfile.ZipFile(wheel).read(f"{info}/sboms/bill.cdx.json") == text
    bill, lock = json.loads(text), locked()
    assert bill["metadata"]["component"]["version"] == holotype.__version__
    packages = {part["name"]: part["version"] for part in bill["components"] if part["type"] == "library"}
    assert {canonicalize_name(one.name) for one in requirements()} <= set(packages)
    assert {name: lock[name][0] for name in packages} == packages
    for part in bill["components"]:
        assert part["licenses"], part["name"]
        if part["type"] == "data":
            content = (TOP / "src" / part["name"]).read_bytes()
            assert part["hashes"][0]["content"] == hashlib.sha256(content).hexdigest()
