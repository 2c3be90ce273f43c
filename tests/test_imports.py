"""The order of the house: a folder imports from those below it and never from those above, typing imports included;
training begins soon; only the scores read the truth."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import holotype
from holotype.methods import METHODS

PACKAGE = Path(holotype.__file__).parent
SOURCES = {
    file.relative_to(PACKAGE): file.read_text(encoding="utf-8") for file in sorted(PACKAGE.rglob("*.py"))
}
LADDER = (
    *("errors", "config", "utils", "data", "losses", "models", "clustering", "methods", "training"),
    *("embeddings", "results", "runs", "report", "export", "discovery", "studio", "cli"),
)
"""From the ground up. The root's own modules stand on top: they hand out what lies below."""
ROOT = {"__init__", "__main__", "errors"}
MAY_READ_TRUTH = {"clustering/metrics.py", "data/table.py"}
"""The table defines it, and takes it along when rows are chosen."""
COMPILER = "torch._dynamo"
LATER = ("matplotlib", "transformers", "torchmetrics", "sklearn", "pandas", "scipy.optimize", COMPILER)
"""What the first step of training does not need."""


def imports(text: str) -> list[tuple[int, str]]:
    """Line and module of every import of the package's own modules, wherever it stands in the file."""
    found = []
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            own = node.module == "holotype"
            names = [f"holotype.{alias.name}" for alias in node.names] if own else [node.module]
        found += [(node.lineno, name) for name in names if name.split(".")[0] == "holotype"]
    return found


def test_the_root_is_nearly_empty() -> None:
    assert {file.stem for file in PACKAGE.glob("*.py")} == ROOT
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert folders == set(LADDER) - {"errors"}


def test_imports_go_down_only() -> None:
    upward = []
    for file, text in SOURCES.items():
        here = file.with_suffix("").parts[0]
        for line, module in imports(text) if here not in ROOT - {"errors"} else ():
            to = module.split(".")[1] if "." in module else "__init__"
            # the version is a word, and asks nothing of anybody
            if to not in ("__version__", "__init__") and LADDER.index(to) > LADDER.index(here):
                upward.append(f"{file}:{line} imports {module}")
    assert upward == []


def test_no_file_imports_a_file_that_imports_it() -> None:
    """Within a folder, too: a circle means that two files are one, or that something stands in the wrong one."""
    edges: dict[str, set[str]] = {}
    for file, text in SOURCES.items():
        parts = file.with_suffix("").parts
        name = ".".join(("holotype", *(parts[:-1] if parts[-1] == "__init__" else parts)))
        edges[name] = {module for _, module in imports(text)}
    assert [(a, b) for a in edges for b in edges[a] if a < b and a in edges.get(b, ())] == []


def test_only_the_scores_read_the_truth() -> None:
    readers = {file.as_posix() for file, text in SOURCES.items() if re.search(r"\.truth\b", text)}
    assert readers <= MAY_READ_TRUTH
    assert "clustering/metrics.py" in readers  # else this test looks for the wrong thing


CHILD = f"""
import sys
from holotype.training import step

class Enough(BaseException):
    pass

def first(self, drawn):
    print("BEFORE", [name for name in {LATER!r} if name in sys.modules], flush=True)
    raise Enough

step.Step.__call__ = first
from holotype.cli import main
for number, data in enumerate(sys.argv[1:3]):
    try:
        main(["train", "rpc", data, *sys.argv[4:], "--out", f"{{sys.argv[3]}}/{{number}}"])
    except Enough:
        pass
"""


def test_nothing_heavy_is_imported_before_the_first_step(squares_folder, tiny_flags, tmp_path) -> None:
    """Neither of a file nor of a folder."""
    words = [squares_folder / "squares.csv", squares_folder, tmp_path, *tiny_flags]
    command = [sys.executable, "-c", CHILD, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    told = [line for line in done.stdout.splitlines() if line.startswith("BEFORE")]
    assert told == ["BEFORE []"] * 2, done.stderr


TRIALS = f"""
import sys
from holotype.methods import METHODS
from holotype.config.schema import BackboneConfig
from holotype.models.backbone import load_backbone
from holotype.runs.experiment import default_experiment
from holotype.runs.resources import check_fits, load_data
backbone = load_backbone(BackboneConfig("embedded"), patches=True)
for name in METHODS:
    experiment = default_experiment(name, sys.argv[1])
    experiment.k = 4
    check_fits(experiment, load_data(experiment), backbone)
    print("BUILT", name, {COMPILER!r} in sys.modules)
"""


def test_a_trial_build_of_a_method_leaves_the_compiler_alone(squares_folder) -> None:
    """On the meta device many operations of torch import it, which takes longer than all else before the first step."""
    command = [sys.executable, "-c", TRIALS, str(squares_folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    built = [line for line in done.stdout.splitlines() if line.startswith("BUILT")]
    assert built == [f"BUILT {name} False" for name in METHODS], done.stderr
