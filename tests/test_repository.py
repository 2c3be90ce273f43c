"""The repository itself: what may lie in it, what its text may say, and that its rules of size hold.

Everything git tracks is looked at, and what it would add next, so that a mistake shows before a commit.
"""

import ast
import re
import shutil
import subprocess
import zipfile
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from holotype.report.build import SCRIPTS
from tests.conftest import LONGEST

TOP = Path(__file__).resolve().parent.parent
PACKAGE = TOP / "src" / "holotype"
STUDIES = TOP / "experiments"

SAMPLE = "src/holotype/data/sample/fashion_mnist_1000.npz"
WEIGHTS = "src/holotype/models/weights/vit_tiny_patch16_128.safetensors"
LARGE = {SAMPLE, WEIGHTS}  # files that may exceed MAX_BYTES
MAX_BYTES = 300_000
SCREENS = {
    *("docs/report-light.png", "docs/report-phone.png", "docs/studio.png"),
    *("docs/studio-start.png", "docs/studio-phone.png"),
}
"""The report and the studio of the demo, which shows the embedded sample."""
IMAGES = {SAMPLE, *SCREENS}
"""Files that may hold pictures. Pictures of other data sets have terms of their own: none is shipped."""
SYNTHETIC = {"tests/parity/transform_subset.npz"}
"""Arrays of pixels that no camera saw: gradients, chequers and noise."""
BINARY = (SAMPLE, WEIGHTS, *SCREENS, "tests/parity/*.npz")  # files that need not be text

IMAGE_ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp", ".ico"}
IMAGE_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\x00", b"MM\x00*")

# Put together from parts, since this file is text of the repository as well.
FORBIDDEN = {
    "a path of somebody's machine": re.compile(
        r"(?<![\w.~-])/(" + "|".join(("work", "root", "home")) + r")/"
    ),
    "a folder outside the repository": re.compile(r"(?<![\w-])" + "shared" + "/"),
    "a package index": re.compile(
        "|".join(("index" + "-url", "trusted" + "-host", "artifact" + "ory")), re.I
    ),
    "a private host": re.compile(r"://[^/\s\"'`]*(\." + r"(internal|corp|lan|local)\b|@)"),
    # "==" stands before a version of four numbers
    "a private address": re.compile(r"(?<!==)\b(10\.\d+|192\.168|172\.(1[6-9]|2\d|3[01]))" + r"\.\d+\.\d+\b"),
}

MAX_LINES, MAX_FUNCTION, MAX_SOURCE_FILES, MAX_FILES, MAX_WORDS = 800, 60, 213, 850, 44_500
ODD_NAMES = """told said given asked meant kept made found own later there now ours chosen taken begun gone coming
standing known wanted seen shown"""
"""What a module may not be called."""

SHIPPED = (
    *("py.typed", "runs/published.json", "data/sample/fashion_mnist_1000.npz", "data/sample/NOTICE.md"),
    *("models/recommended.json", "models/speeds.json", "models/weights/vit_tiny_patch16_128.safetensors"),
    *("models/weights/MODEL_CARD.md", "models/weights/NOTICE.md"),
    *(f"report/{name}" for name in ("template.html", "report.css", "print.css", *SCRIPTS)),
)


@pytest.fixture(scope="module")
def files() -> list[str]:
    """Everything tracked or about to be, as paths from the top."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=False)
    inside = subprocess.run(["git", "rev-parse", "--show-toplevel"], cwd=TOP, capture_output=True, text=True)
    if listed.returncode != 0 or Path(inside.stdout.strip()) != TOP:
        pytest.skip("this is not a git checkout")
    found = sorted({name for name in listed.stdout.split("\0") if name and (TOP / name).is_file()})
    assert "pyproject.toml" in found
    return found


def test_large_files_are_on_the_list(files: list[str]) -> None:
    assert {name for name in files if (TOP / name).stat().st_size > MAX_BYTES} <= LARGE
    assert set(files) >= LARGE


def test_no_file_is_a_picture(files: list[str]) -> None:
    pictures = {name for name in files if is_picture(name, (TOP / name).read_bytes()) or holds_pictures(name)}
    assert pictures <= IMAGES | SYNTHETIC
    assert SAMPLE in pictures  # else this test looks for the wrong thing


def is_picture(name: str, content: bytes) -> bool:
    """By its ending, or by its first bytes."""
    webp = content[:4] == b"RIFF" and content[8:12] == b"WEBP"
    bmp = content[:2] == b"BM" and content[2:6] == len(content).to_bytes(4, "little")
    return Path(name).suffix.lower() in IMAGE_ENDINGS or content.startswith(IMAGE_STARTS) or webp or bmp


def holds_pictures(name: str) -> bool:
    """Is it an archive of arrays, one of which holds pixels or the bytes of an image file?"""
    path = TOP / name
    if not zipfile.is_zipfile(path):
        return False
    if path.suffix != ".npz":
        return True  # nobody knows what is in it
    with np.load(path, allow_pickle=False) as arrays:
        return any(is_pixels(arrays[key]) for key in arrays.files)


def is_pixels(array: np.ndarray) -> bool:
    if array.dtype.kind in "SV":
        return True  # bytes of any kind
    stack = array.ndim >= 3 or (array.ndim == 2 and array.shape[1] in (3072, 784, 1024))
    return array.dtype == np.uint8 and (stack or is_picture("", array.tobytes()))


def test_whatever_is_not_text_is_on_the_list(files: list[str]) -> None:
    binary = {name for name in files if read_text(name) is None}
    assert {name for name in binary if not any(fnmatch(name, pattern) for pattern in BINARY)} == set()


def read_text(name: str) -> str | None:
    """None for a file that is not text."""
    content = (TOP / name).read_bytes()
    try:
        return None if b"\0" in content else content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def test_text_names_nobodys_machine(files: list[str]) -> None:
    found = []
    for name in files:
        for number, line in enumerate((read_text(name) or "").splitlines(), start=1):
            for what, pattern in FORBIDDEN.items():
                if pattern.search(line):
                    found.append(f"{name}:{number} names {what}: {line.strip()[:80]}")
    assert found == []


def test_forbidden_words_are_recognised() -> None:
    path, folder, index, host, address = FORBIDDEN.values()
    slash = "/"
    for pattern, text, other in (
        (path, f"cd {slash}home{slash}me", f"framework{slash} and homework{slash}root{slash}x"),
        (folder, f"see ..{slash}shared{slash}data", "shared by all"),
        (index, "pip install --index" + "-url x", "an index"),
        (host, "http://pypi.site" + ".internal/simple", "https://github.com/zalandoresearch/fashion-mnist"),
        (address, "HOST=10.1" + ".2.3", "nvidia-curand==10.4" + ".0.35"),
    ):
        assert (bool(pattern.search(text)), bool(pattern.search(other))) == (True, False), text


def python_files(*folders: str) -> dict[str, ast.Module]:
    """Path from the top and syntax tree of the Python files below some folders."""
    paths = [file for folder in folders for file in sorted((TOP / folder).rglob("*.py"))]
    return {path.relative_to(TOP).as_posix(): parsed(path) for path in paths}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_files_and_functions_are_short() -> None:
    every = python_files("src", "tests", "examples", "benchmarks", "experiments", "tools")
    assert sum(name.startswith("src/") for name in every) <= MAX_SOURCE_FILES
    lengths = {name: len((TOP / name).read_text(encoding="utf-8").splitlines()) for name in every}
    assert {name: n for name, n in lengths.items() if n > MAX_LINES} == {}
    functions = {
        f"{name}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for name, tree in every.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: n for name, n in functions.items() if n > MAX_FUNCTION} == {}


def test_every_file_says_what_it_is_for() -> None:
    every = python_files("src", "examples", "benchmarks", "experiments", "tools")
    assert [name for name, tree in every.items() if ast.get_docstring(tree) is None] == []


def test_one_name_one_meaning() -> None:
    """No public class or function has its name in two modules, and no module is called by a participle or a pronoun."""
    homes: dict[str, list[str]] = {}
    for name, tree in python_files("src").items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name)
        assert not {*Path(name).stem.split("_")} & set(ODD_NAMES.split()), name
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_the_longest_test_files_are_there() -> None:
    assert [name for name in LONGEST.split() if not (TOP / "tests" / f"{name}.py").is_file()] == []


def test_the_repository_stays_small(files: list[str]) -> None:
    assert len(files) <= MAX_FILES
    documents = [name for name in files if name.endswith(".md")]
    assert sum(len((read_text(name) or "").split()) for name in documents) <= MAX_WORDS
    assert len(list(STUDIES.glob("*.yaml"))) <= 25
    assert len(list(STUDIES.glob("*.py"))) <= 13
    assert len(list((TOP / "benchmarks").glob("*.py"))) <= 10
    records = list((STUDIES / "results").iterdir())
    assert len(records) <= 60
    assert sum(path.stat().st_size for path in records) <= 3_000_000


def test_the_package_holds_what_it_needs(files: list[str]) -> None:
    """The wheel is the folder of the package; what is tracked below it is in it."""
    from holotype.data.datasets.registry import LAYOUTS

    splits = [f"data/datasets/splits/{name}.json" for name in LAYOUTS]
    assert {f"src/holotype/{name}" for name in (*SHIPPED, *splits)} <= set(files)
    config = (TOP / "pyproject.toml").read_text(encoding="utf-8")
    assert 'packages = ["src/holotype"]' in config


def test_terms_are_told() -> None:
    licence, notice = ((TOP / name).read_text(encoding="utf-8") for name in ("LICENSE", "NOTICE"))
    assert licence.startswith("MIT License")
    for word in ("Fashion-MNIST", "Zalando", "EfficientNet-Lite2", "Apache", "MODEL_CARD.md"):
        assert word in notice, word
    card = (PACKAGE / "models" / "weights" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "cannot be compared with published tables" in card
