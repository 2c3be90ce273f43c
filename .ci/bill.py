"""bill.cdx.json, the bill of materials that goes with the wheel (CycloneDX 1.6): what it needs to run, in the locked
versions, and what it carries inside. Made by .ci/lock; the environment that runs it must have the locked versions.

The same lock and the same files give the same bill, to the byte.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import holotype

TOP = Path(__file__).resolve().parents[1]
LOCK, BILL = TOP / "requirements.lock", TOP / "bill.cdx.json"
CARRIED = {
    "src/holotype/data/sample/fashion_mnist_1000.npz": "MIT",
    "src/holotype/models/weights/vit_tiny_patch16_128.safetensors": "MIT",
}
"""Files of the wheel that are no code, and their licences."""


def locked() -> dict[str, tuple[str, list[str]]]:
    """Version and SHA-256 sums of every package of the lock file."""
    text = LOCK.read_text(encoding="utf-8").replace("\\\n", " ")
    found: dict[str, tuple[str, list[str]]] = {}
    for line in (line for line in text.splitlines() if line and not line.startswith("#")):
        name, version, *sums = re.split("==| +", line.strip())
        found[canonicalize_name(name)] = (version, [one.removeprefix("--hash=sha256:") for one in sums])
    return found


def needed() -> list[str]:
    """Names of all packages that the package needs to run, directly or not."""
    seen: set[str] = set()
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    todo = [Requirement(text) for text in project["dependencies"]]
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        extras = wanted.extras or {""}
        if name in seen or not any(
            wanted.marker is None or wanted.marker.evaluate({"extra": extra}) for extra in extras
        ):
            continue
        seen.add(name)
        todo += [Requirement(text) for text in metadata.requires(name) or []]
    return sorted(seen)


def licence(name: str) -> list[dict[str, Any]]:
    """As the package says it: an expression, a name, or what its classifiers tell."""
    said = metadata.metadata(name)
    if said["License-Expression"]:
        return [{"expression": said["License-Expression"]}]
    told = [c.rsplit(" :: ", 1)[1] for c in said.get_all("Classifier") or [] if c.startswith("License :: ")]
    short = (said["License"] or "").strip()
    if short and "\n" not in short and len(short) < 60:
        told = [short]
    return [{"license": {"name": one}} for one in told]


def component(name: str, version: str, sums: list[str]) -> dict[str, Any]:
    url = f"pkg:pypi/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": version,
        "purl": url,
        "licenses": licence(name),
        # a component has one sum, a package has a file for each platform: a digest of all sums stands for them
        "properties": [
            {"name": "files", "value": str(len(sums))},
            {
                "name": "sha256 of their sums",
                "value": hashlib.sha256("\n".join(sorted(sums)).encode()).hexdigest(),
            },
        ],
    }


def carried(path: str, terms: str) -> dict[str, Any]:
    content = (TOP / path).read_bytes()
    name = path.removeprefix("src/")
    return {
        "type": "data",
        "bom-ref": name,
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}],
        "licenses": [{"license": {"id": terms}}],
    }


def bill() -> dict[str, Any]:
    lock, version = locked(), holotype.__version__
    parts = [component(name, *lock[name]) for name in needed()]
    inside = [carried(path, terms) for path, terms in CARRIED.items()]
    own = {"type": "library", "bom-ref": "holotype", "name": "holotype", "version": version}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own | {"licenses": [{"license": {"id": "MIT"}}]}},
        "components": parts + inside,
        "dependencies": [{"ref": "holotype", "dependsOn": [part["bom-ref"] for part in parts + inside]}],
    }


if __name__ == "__main__":
    BILL.write_text(json.dumps(bill(), indent=1) + "\n", encoding="utf-8")
