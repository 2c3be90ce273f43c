"""What the documents show is true: commands parse, links lead somewhere, examples run, tables are those of records."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from tools.torture.page import BLOCK, RECORD, block

from holotype.cli import COMMANDS, options_type
from holotype.cli.common import Parser
from holotype.data.datasets.registry import BENCHMARKS, read_dataset_info
from holotype.methods import METHODS, WRAPPERS
from holotype.runs.experiment import resolve
from tests.made_study import asked_for

from .conftest import FENCE, TOP, blocks, page, run_python

NAMES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
DOCUMENTS = {
    path: path.read_text(encoding="utf-8") for path in [*map(TOP.joinpath, NAMES), *TOP.glob("docs/**/*.md")]
}
RESEARCHERS, FORMATS = page("researchers"), page("formats")
RUN_HERE = ("train", "methods", "data", "doctor", "status", "cache", "completion")
"""Commands that are run as they stand. Of the others the words are parsed; test_pages.py runs them."""


def commands() -> Iterator[tuple[str, str]]:
    """(document, words after `holotype`) of every command line in the documents and the example."""
    for document, text in DOCUMENTS.items():
        for line in "\n".join(blocks(text, "bash")).replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and re.match(r"^\w+=\S*$", words[0]):
                words = words[1:]
            if words and words[0] == "torchrun":
                words = words[words.index("-m") + 1 :]
            if words and words[0] == "holotype":
                yield document.name, shlex.join(words[1:])
    example = (TOP / "examples" / "my_method.py").read_text(encoding="utf-8")
    for line in re.findall(r"^ +PYTHONPATH=examples holotype (.+)$", example, re.MULTILINE):
        yield "my_method.py", line


@pytest.mark.parametrize(("document", "line"), sorted(set(commands())))
def test_commands_parse(document: str, line: str, holotype, tmp_path, monkeypatch) -> None:
    """Every flag and value is one that the command takes; nothing is trained and no data are looked for."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").symlink_to(TOP / "experiments")
    monkeypatch.syspath_prepend(str(TOP / "examples"))
    name, *words = shlex.split(line)
    if name == "train" and "--help" not in words:
        if "--config" in words:
            config = Path(words[words.index("--config") + 1])
            config.parent.mkdir(parents=True, exist_ok=True)
            config.write_text(holotype("train", "rpc", "cub", "--print_config").out)
        words.append("--print_config")
    if name not in RUN_HERE:
        options = Parser(name, options_type(name)).parse_args(words)
        assert name != "bench" or options.table_only or asked_for(words)
        return
    check = lambda name, root: SimpleNamespace(ok=True)  # noqa: E731
    monkeypatch.setattr("holotype.data.datasets.registry.check_benchmark", check)
    outcome = holotype(name, *words)
    assert outcome.code == 0, (document, outcome.err)
    assert outcome.out


def test_inline_commands_and_settings_exist(holotype) -> None:
    """`holotype NAME`, `--method.setting` and `method.setting` in running text and tables."""
    names = [*METHODS, "+".join([*WRAPPERS, "rpc"])]
    settings = "".join(holotype("train", name, "cub", "--help").out for name in names)
    for document, text in DOCUMENTS.items():
        text = FENCE.sub("", text)
        for name in re.findall(r"`holotype ([a-z][\w-]*)", text):
            assert name in COMMANDS, (document.name, name)
        for key in re.findall(r"`(?:--)?((?:method|train|backbone)\.[\w.]+)[ `]", text):
            assert f"--{key.replace('_', '-')} " in settings, (document.name, key)


def test_every_flag_of_every_command_is_on_a_page() -> None:
    """Those of `holotype train` are settings, which its help and the cards of the methods list."""
    text = "\n".join(DOCUMENTS.values())
    for name in COMMANDS:
        for action in Parser(name, options_type(name))._actions:
            flags = [flag for flag in action.option_strings if flag.startswith("--")]
            told = [flag for flag in flags if re.search(rf"--{flag[2:].replace('-', '[-_]')}(?![\w-])", text)]
            assert told or not flags, (name, flags)


def test_links_and_paths_lead_to_files() -> None:
    for document, text in DOCUMENTS.items():
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            file = document.parent / path if path else document
            assert "://" in path or file.is_file(), (document.name, target)
            if anchor and "://" not in path:
                assert anchor in anchors(file), (document.name, target)
        for path in re.findall(r"`((?:src|tests|docs|examples|experiments|benchmarks)/[\w./-]+)`", text):
            assert (TOP / path).exists(), (document.name, path)


def anchors(document: Path) -> set[str]:
    """The names that headings get on a web page."""
    heads = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_method_has_a_card_and_a_line_with_a_link_to_it() -> None:
    """What stands on the cards is checked by tests/experiments/test_exhibits.py."""
    entry = page("methods")
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (TOP / "docs" / "methods").glob("*.md")}
    assert set(pages) == {*METHODS, *WRAPPERS}
    for name, kind in WRAPPERS.items():
        assert kind.card is not None
        assert pages[name].startswith(f"# {kind.card.title}\n\n<!-- table: {name}+simgcd kind=card -->\n")
    for name, kind in METHODS.items():
        assert kind.card is not None
        assert pages[name].startswith(f"# {kind.card.title}\n\n<!-- table: {name} kind=card -->\n")
        row = rf"^\| \[`{name}`\]\(methods/{name}.md\) \|.*\| {re.escape(kind.card.line)} \|"
        assert re.search(row, entry, re.MULTILINE)


def test_every_benchmark_is_documented_with_its_counts() -> None:
    text = page("data")
    for name in BENCHMARKS:
        facts = read_dataset_info(name)
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        assert f"| {len(facts.split.known)} / {facts.classes} |" in row, name
        assert (f"| {facts.train:,} |" if facts.train else "| as found |") in row, name


@pytest.fixture
def asked(tmp_path, monkeypatch, squares_folder, tiny_backbone_file) -> list[tuple[str, str, int]]:
    """Method, data set and seed of all that Python code asks for; what is run is tiny, on coloured squares."""
    found = []
    tiny = {"k": 4, "backbone.name": str(tiny_backbone_file), "train.epochs": 1, "train.batch_size": 16}
    tiny |= {"device": "cpu", "progress": False}

    def resolve_small(method, dataset, preset="default", overrides=None):
        wanted = resolve(method, dataset, preset, overrides)  # what is asked for can be had
        found.append((method, dataset, wanted.seed))
        return resolve(method, str(squares_folder / "squares.csv"), preset, {**(overrides or {}), **tiny})

    monkeypatch.setattr("holotype.runs.run.resolve", resolve_small)
    monkeypatch.setattr("holotype.runs.study.resolve", resolve_small)
    monkeypatch.chdir(tmp_path)
    return found


def test_the_python_example_trains(asked, holotype, capsys) -> None:
    names = run_python(blocks(RESEARCHERS, "python")[0])
    assert asked == [("rpc", "fashion-sample", 0)]
    printed = capsys.readouterr().out
    assert all(category in printed for category in names["run"].images.category.unique())
    assert str(names["record"].scores.all) in printed
    run = Path("runs/first")
    images = pd.read_csv(run / "assignments.csv")
    assert len(images) == 64
    assert holotype("report", run).code == 0
    table = table_of_files()
    columns = FORMATS.partition("\n## assignments")[2].partition("\n## ")[0]
    assert [name for name in images.columns if f"`{name}`" not in columns] == []
    told = [name.rstrip("/") for row in table for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    left = [file.name for file in run.iterdir() if not file.name.startswith(".")]
    assert [name for name in left if not any(fnmatch(name, one) for one in told)] == []


def table_of_files() -> list[str]:
    """Rows of the table of a run folder."""
    section = FORMATS.partition("## The run folder\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| `")]


def test_the_python_example_sweeps(asked, capsys) -> None:
    _, example = blocks(RESEARCHERS, "python")
    assert len(example.splitlines()) <= 10
    sweep = run_python(example)["sweep"]
    assert asked == [(method, "fashion-sample", seed) for method in ("simgcd", "rpc") for seed in (0, 1)]
    assert [(row.facts["method"], row.seeds) for row in sweep.rows] == [("simgcd", (0, 1)), ("rpc", (0, 1))]
    assert len(list(Path("results/runs").iterdir())) == 4
    assert "| squares | rpc |" in capsys.readouterr().out


def test_the_table_of_trust_is_that_of_the_record() -> None:
    (shown,) = BLOCK.findall(page("trust"))
    assert shown == block(json.loads(RECORD.read_text(encoding="utf-8")))


def results_rows(study: str) -> dict[str, str]:
    """Method -> All, from the table of a study in docs/results.md."""
    rest = re.split(rf"<!-- table: {study} rows=\S+ kind=progress -->", page("results"))[1]
    table = rest.partition("<!-- end of table -->")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if "|" in line]
    return {row[0].split()[0]: row[rows[0].index("All")] for row in rows[2:]}


def test_the_table_of_the_front_page_is_that_of_the_results() -> None:
    titles = {kind.card.title: name for name, kind in METHODS.items()}
    readme = DOCUMENTS[TOP / "README.md"]
    rows = re.findall(r"^\| ([\w+-]+) \| (\d{4}) \| (.+?) \| (.+?) \| (.+?) \|$", readme, re.MULTILINE)
    cub, cifar = results_rows("peers"), results_rows("peers-cifar")
    assert sorted(titles[title] for title, *_ in rows) == sorted(cub.keys() & METHODS.keys())
    for title, year, *cells, _ in rows:
        name = titles[title]
        assert int(year) == METHODS[name].card.year
        assert [cell.strip("* ") for cell in cells] == [cub[name], cifar[name]], name
