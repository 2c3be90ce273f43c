"""What strangers hand over (images, tables, archives, edits, settings), and others on the machine and on the hub."""

import ast
import csv
import io
import json
import os
import pickle
import re
import shutil
import stat
import sys
import tempfile
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from huggingface_hub.errors import EntryNotFoundError
from tools.torture.inputs import ENDINGS, OTHERS, png

from holotype.cli.common import echo_json, escape_control
from holotype.config.parse import parse_yaml
from holotype.data import image_files
from holotype.data.decode import ImageProblem, read_image
from holotype.data.image_files import ArchiveProblem, read_array
from holotype.data.load import load_table
from holotype.data.readers.folder import read_folder, scan_folder
from holotype.discovery.estimator import Discoverer
from holotype.errors import InputError
from holotype.export.zip import write_zip
from holotype.models import hub, zoo
from holotype.report import build_report
from holotype.results.edits import Edit, append_edits, edits_csv, log_locked
from holotype.runs.record import RunFolder
from holotype.runs.tables import table_csv
from holotype.training.checkpoint import MetricsLog
from holotype.utils.atomic import refuse_links, write_text
from report.made import make_discovery
from tests.conftest import draw_squares

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "holotype"
ESCAPES = ("\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\x08\x08", "\r", "\u202e", "\u2066", "\udcff", "\u2028")


class Runs:
    """What a pickle runs when it is loaded."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return os.mkdir, (str(self.file),)


def test_what_is_called_an_image_and_is_none_meets_no_decoder_and_no_program(tmp_path):
    started: list[str] = []
    starts = ("subprocess", "os.sys")
    sys.addaudithook(lambda event, _: started.append(event) if event.startswith(starts) else None)
    for content in OTHERS.values():
        for ending in ENDINGS:
            (tmp_path / f"photo{ending}").write_bytes(content)
            with pytest.raises(ImageProblem):
                read_image(str(tmp_path / f"photo{ending}"))
    assert started == []


def test_a_small_file_of_enormous_pictures_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    (tmp_path / "bomb.png").write_bytes(png(6_000, 600_000, 2))
    with pytest.raises(ImageProblem, match="too large"):
        read_image(str(tmp_path / "bomb.png"))
    monkeypatch.setattr(image_files, "LARGE_BYTES", 5_000_000)
    np.savez_compressed(tmp_path / "bomb.npz", x=np.zeros((6, 1000, 1000), np.uint8))
    with pytest.raises(ArchiveProblem, match="unpacks to"):
        read_array(str(tmp_path / "bomb.npz"), 0)
    np.savez(tmp_path / "a.npz", x=np.array([Runs(tmp_path / "owned")], dtype=object), allow_pickle=True)
    with pytest.raises(ArchiveProblem):  # it is not unpickled either
        read_array(str(tmp_path / "a.npz"), 0)
    assert not (tmp_path / "owned").exists()


def test_archives_are_not_unpacked(tmp_path):
    """What lies in a tar or a zip cannot land outside a folder: nothing of ours takes them apart."""
    draw_squares(tmp_path)
    for name in ("more.tar", "more.tar.gz", "more.zip", "more.7z"):
        (tmp_path / name).write_bytes(OTHERS["tar"])
    found = scan_folder(tmp_path)
    assert {path.suffix for path in found.images} == {".png"}
    assert {".tar", ".gz", ".zip", ".7z"} <= set(found.passed)
    # tars are read where they lie (data/readers/webdataset.py)
    assert {"extract", "extractall", "unpack_archive"} & names_in_the_package() == set()


@cache
def names_in_the_package() -> set[str]:
    """Modules that are imported, and attributes that are asked for, anywhere."""
    found: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
    return found


def test_a_path_that_leads_out_of_the_folder_is_no_image_of_it(tmp_path):
    """A table may list images that lie elsewhere; with a folder it labels the images of the folder alone."""
    draw_squares(tmp_path / "images")
    (tmp_path / "images" / "round").symlink_to(tmp_path / "images", target_is_directory=True)
    assert len(read_folder(tmp_path / "images")) == 64  # links are followed once, and never for ever
    (tmp_path / "secret.png").write_bytes(b"not for you")
    (tmp_path / "labels.csv").write_text("path,label\n../secret.png,red\n")
    with pytest.raises(InputError, match="are not in"):
        load_table(tmp_path / "images", tmp_path / "labels.csv")


def test_settings_are_data_and_never_code(tmp_path):
    orders = f"a: !!python/object/apply:os.mkdir ['{tmp_path / 'owned'}']", "a: !!python/name:os.system"
    for text in orders:
        with pytest.raises(ValueError, match="python"):
            parse_yaml(text)
    assert not (tmp_path / "owned").exists()
    assert {"eval", "exec", "unsafe_load", "full_load"} & names_in_the_package() <= {"eval"}  # of a network
    lines = [line for file in PACKAGE.rglob("*.py") for line in file.read_text(encoding="utf-8").splitlines()]
    loading = [line for line in lines if "torch.load(" in line]
    assert loading
    assert [line for line in loading if "weights_only=True" not in line] == []


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_table_holds_a_formula(name, tmp_path):
    edits = [Edit("r", "t", "rename", "", name, name)]
    row = {"class": name, "kind": "known", "n": 1, "correct": 1, "accuracy": 1.0, "category": 0}
    rows = [row | {"counts": {0: 1}}]
    RunFolder(tmp_path).write_per_class(rows)
    parts = {"facts": defaultdict(lambda: name), "scores": defaultdict(lambda: None)}
    parts |= {"published": None, "settings": {}}
    tables = [(tmp_path / name).read_bytes().decode() for name in ("per_class.csv", "confusion.csv")]
    row = SimpleNamespace(**parts, seeds=[0], seconds=1.0, commits=[], hardware=[])
    for text in (edits_csv(edits), *tables, table_csv([row])):
        cells = [cell for line in csv.reader(io.StringIO(text, newline="")) for cell in line]
        assert [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))] == []


def test_names_give_a_terminal_no_orders(capsys):
    for sign in ESCAPES:
        said = escape_control(f"a {sign} b\n\tKäfer ✓")
        assert said.replace("\n", "").replace("\t", "").isprintable()
        assert said.startswith("a \\")
        assert said.endswith(" b\n\tKäfer ✓")
        said.encode()
    name = "\x1b[2J\x7f\x9b2J\u202eKäfer\ud800"
    echo_json({"name": name})  # JSON on a terminal is ASCII, and comes back
    said = capsys.readouterr().out
    assert said.isascii()
    assert not {"\x1b", "\x7f"} & set(said)
    assert json.loads(said) == {"name": name}


def test_a_folder_called_like_an_order_is_told_harmlessly(tmp_path, holotype):
    folder = tmp_path / "\x1b]0;owned\x07\x1b[2J"
    folder.mkdir()
    for words in (["discover", folder], ["report", folder], ["train", "simgcd", folder], ["embed", folder]):
        outcome = holotype(*words)
        assert outcome.code == 2
        assert "\\x1b]0;owned" in outcome.err
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", outcome.out + outcome.err)


def test_commands_say_nothing_but_by_that_way():
    """Of what they print themselves: the help and the version, in which nobody else has a word."""
    lines = [line for file in (PACKAGE / "cli").glob("*.py") for line in file.read_text("utf-8").splitlines()]
    bare = [line for line in lines if re.search(r"(?<![\w.])print\(", line)]
    allowed = ("print(help_text())", 'print(f"holotype {__version__}")', "print(escape_control(str(text))")
    assert [line for line in bare if not any(words in line for words in allowed)] == []


@pytest.fixture
def precious(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("mine")
    return tmp_path / "precious"


def test_nothing_is_written_through_a_link_to_a_folder(tmp_path, precious, holotype):
    """Not even thumbnails. That the run folder itself is a link is its owner's choice."""
    run = tmp_path / "run"
    make_discovery(tmp_path, 20).save(run)
    for place in ("report", "report/thumbs", "rounds", "cuts"):
        words = ("cut", run, "--k", "2") if place == "cuts" else ("report", run)
        (run / place).parent.mkdir(exist_ok=True)
        (run / place).symlink_to(precious, target_is_directory=True)
        outcome = holotype(*words, "--no-progress")
        assert outcome.code == 2
        assert f"{run / place} is a link to another folder" in outcome.err
        (run / place).unlink()
        shutil.rmtree(run / "report", ignore_errors=True)
    assert [path.name for path in precious.iterdir()] == ["file"]
    (tmp_path / "link").symlink_to(run, target_is_directory=True)
    refuse_links(tmp_path / "link")


def test_links_to_files_are_replaced_and_locks_and_lines_are_not_written_through_them(tmp_path, precious):
    run = tmp_path / "run"
    run.mkdir()
    for name in ("discovery.json", ".edits.csv.lock", "metrics.jsonl", "nothing.jsonl"):
        (run / name).symlink_to(precious / ("gone" if "nothing" in name else "file"))
    write_text(run / "discovery.json", "{}")
    with pytest.raises(InputError, match="is a symbolic link, not a lock"), log_locked(run):
        pass
    with pytest.raises(InputError):
        append_edits(run, [Edit("r", "t", "rename", "", "a", "b")])
    for name in ("metrics", "nothing"):
        with pytest.raises(InputError):
            MetricsLog(run / f"{name}.jsonl").append(counter=1)
    assert [(path.name, path.read_text()) for path in precious.iterdir()] == [("file", "mine")]


def test_what_a_link_leads_to_is_not_mailed(tmp_path, precious):
    """A picture of the report that is a link would send whatever lies there."""
    run = tmp_path / "run"
    found = make_discovery(tmp_path, 20)
    found.save(run)
    build_report(found, run)
    sheet = run / "report" / "thumbs" / "00000.jpg"
    sheet.unlink()
    sheet.symlink_to(precious / "file")
    with pytest.raises(InputError, match="is a symbolic link, and what it leads to is not mailed"):
        write_zip(run, tmp_path / "mail.zip")
    build_report(found, run)  # makes it anew
    assert not sheet.is_symlink()
    assert (precious / "file").read_text() == "mine"
    write_zip(run, tmp_path / "mail.zip")


@pytest.mark.skipif(os.name != "posix", reason="there are no modes")
def test_pictures_from_memory_lie_in_a_folder_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    owner = Discoverer()
    assert stat.S_IMODE(os.stat(owner._make_temporary()).st_mode) == 0o700


@pytest.mark.parametrize("protocol", ["plain", "torch"])
def test_weights_of_the_hub_run_no_code(protocol, tmp_path, monkeypatch):
    """A hub, or whoever speaks for it, that hands out a pickle in place of tensors."""
    timm = zoo.import_timm()
    file = tmp_path / "pytorch_model.bin"
    bad = {"cls_token": Runs(tmp_path / "owned")}
    if protocol == "plain":
        file.write_bytes(pickle.dumps(bad))
    else:
        torch.save(bad, file)

    def hands_out(*words: str, filename: str = "", **_: object) -> str:
        if (filename or words[-1]).endswith(".safetensors"):
            error = EntryNotFoundError.__new__(EntryNotFoundError)
            Exception.__init__(error, "there is none")
            raise error
        return str(file)

    monkeypatch.setattr(timm.models._hub, "hf_hub_download", hands_out)
    with pytest.raises(InputError, match="would run code when they are loaded"):
        hub.load_from_hub("test_vit.r160_in1k", 160)
    assert not (tmp_path / "owned").exists()


EVIL = """
from pathlib import Path
from holotype.methods.kmeans import KMeans
Path(__file__).with_name("owned").touch()
class Mine(KMeans):
    pass
"""
SAYS = ("stranger:Mine", "the module 'stranger' would be imported", "its 'Mine' run", "--allow-code")


@pytest.mark.parametrize("form", ["config", "study", "model"])
def test_a_file_runs_no_code(form: str, squares_folder, tmp_path, tiny_flags, holotype, monkeypatch) -> None:
    (tmp_path / "stranger.py").write_text(EVIL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "stranger", raising=False)
    file, data, run = tmp_path / "theirs.yaml", squares_folder / "squares.csv", tmp_path / "run"
    if form == "config":
        file.write_text(f"method_name: stranger:Mine\ndataset: {data}\n")
        words = ["train", "--config", file, "--print_config"]
    elif form == "study":
        rows = "rows:\n  mine: {method: stranger:Mine}\n"
        file.write_text(f"question: whose?\nseeds: [0]\ndatasets: [{data}]\n{rows}")
        words = ["bench", "--study", file, "--table-only", "--results", tmp_path / "results"]
    else:
        file = run / "model.json"
        assert holotype("train", "kmeans", data, *tiny_flags, "--out", run).code == 0
        file.write_text(json.dumps(json.loads(file.read_text()) | {"method_name": "stranger:Mine"}))
        out = ("--out", tmp_path / "new.csv", "--device", "cpu", "--no-progress")
        words = ["assign", run, squares_folder / "red", *out]
    refused = holotype(*words)
    assert refused.code == 2
    assert all(one in refused.err for one in (*SAYS, file.name))
    assert not (tmp_path / "owned").exists()
    holotype(*words, "--allow-code")
    assert (tmp_path / "owned").exists()
    # what a person types is their own word, and other commands do not know the flag
    typed = holotype("train", "stranger:Mine", data, "--print_config")
    assert (typed.code, "method_name: stranger:Mine" in typed.out) == (0, True)
    assert holotype("embed", tmp_path, "--allow-code").code == 2
