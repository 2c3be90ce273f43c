"""The notebooks run from beginning to end, offline, and what they show is what they say."""

import json
import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

TOP = Path(__file__).resolve().parents[2]
NOTEBOOKS = TOP / "examples" / "notebooks"
NAMES = ("photos", "method")
QUICK = "from tests.narrow import narrow; narrow(); from holotype.models import zoo; zoo.ENOUGH_SECONDS = 0"
"""Small heads, and no time spent on measuring speed, as in the other tests."""
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def read(name: str) -> Any:
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


def run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, ask: str) -> tuple[Any, Any]:
    """The notebook with its outputs, and what the expression `ask` is in its kernel at the end."""
    for key, value in {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TMPDIR": str(folder)}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("PYTHONPATH", str(TOP), prepend=os.pathsep)
    notebook = read(name)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(QUICK))
    notebook.cells.append(nbformat.v4.new_code_cell(f"import json; print(json.dumps({ask}))"))
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    last, _ = notebook.cells.pop(), notebook.cells.pop(0)
    return notebook, json.loads(last.outputs[0].text)


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def check_bars(notebook: Any) -> None:
    """Bars are lines on stderr that are written over, each up to its end."""
    said = "".join(output.text for output in outputs(notebook) if output.get("name") == "stderr")
    bars = [line.rpartition("\r")[2] for line in said.strip("\n").split("\n")]
    assert any("steps, 100 %" in line for line in bars)  # of one training, or of several together
    assert all("100 %" in line for line in bars)


def pictures(notebook: Any) -> int:
    return sum("image/png" in output.get("data", {}) for output in outputs(notebook))


def test_photos_to_categories_to_corrections_to_new_photos(tmp_path, monkeypatch) -> None:
    classes = "[c.name for c in found.categories if c.kind == 'known']"
    ask = f"[right, names, {classes}, known, len(placed), found.facts.round]"
    notebook, asked = run("photos", tmp_path, monkeypatch, ask)
    right, names, classes, known, placed, number = asked
    assert right["discovered"] > right["k-means"]
    assert right["discovered"] > 0.6  # one kind of six
    assert right["new photos"] > 0.5
    assert placed == 48
    assert number == 2
    assert names  # the answers named categories, which the second round kept
    assert set(classes) >= {*known, *names.values()}
    check_bars(notebook)
    assert pictures(notebook) == 3  # two galleries and the map


def test_a_method_is_written_trained_compared_and_plotted(tmp_path, monkeypatch) -> None:
    notebook, asked = run("method", tmp_path, monkeypatch, "[record.scores.all, scores, list(epochs.index)]")
    alone, scores, epochs = asked
    plain, without, mine = (scores[name] for name in scores)
    assert [len(values) for values in (plain, without, mine)] == [3, 3, 3]
    assert list(scores) == ["kmeans default", "Mine without", "Mine default"]
    assert sum(mine) > sum(plain)
    assert mine != without  # the idea does something
    assert mine[0] == pytest.approx(100 * alone)  # the run of before, made again within the sweep
    assert epochs == [0, 1, 2]
    check_bars(notebook)
    assert pictures(notebook) == 2


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_is_small_without_outputs_and_links_lead_somewhere(name: str) -> None:
    notebook = read(name)
    nbformat.validate(notebook)
    assert outputs(notebook) == []
    assert notebook.metadata.kernelspec.name == "python3"
    assert (NOTEBOOKS / f"{name}.ipynb").stat().st_size < 30_000
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    links = [link for link in LINK.findall(text) if "://" not in link]
    assert links
    assert [link for link in links if not (NOTEBOOKS / link).is_file()] == []


def test_every_notebook_is_run() -> None:
    assert sorted(file.stem for file in NOTEBOOKS.glob("*.ipynb")) == sorted(NAMES)
