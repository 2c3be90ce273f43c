"""Other people on the machine, on the hub and at the terminal."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
import torch

from holotype.cli.common import echo_json, escape_control
from holotype.data.decode import save_images
from holotype.errors import InputError
from holotype.export.zip import write_zip
from holotype.models import hub, zoo
from holotype.report import build_report
from holotype.results.edits import Edit, append_edits, log_locked
from holotype.training.checkpoint import MetricsLog
from holotype.utils.atomic import refuse_links, write_text
from report.made import make_discovery

CLI = Path(__file__).resolve().parents[2] / "src" / "holotype" / "cli"
ESCAPES = ("\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\x08\x08", "\r", "\u202e", "\u2066", "\udcff", "\u2028")


# -- terminals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ESCAPES)
def test_names_give_a_terminal_no_orders(sign: str) -> None:
    said = escape_control(f"a {sign} b\n\tKäfer ✓")
    assert said.isprintable() or said.replace("\n", "").replace("\t", "").isprintable()
    assert said.startswith("a \\")
    assert said.endswith(" b\n\tKäfer ✓")
    said.encode()


def test_a_folder_called_like_an_order_is_told_harmlessly(tmp_path: Path, holotype: Any) -> None:
    folder = tmp_path / "\x1b]0;owned\x07\x1b[2J"
    folder.mkdir()
    for words in (["discover", folder], ["report", folder], ["train", "simgcd", folder], ["embed", folder]):
        outcome = holotype(*words)
        assert outcome.code == 2
        assert "\\x1b]0;owned" in outcome.err
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", outcome.out + outcome.err)


def test_json_on_a_terminal_is_ascii_and_comes_back(capsys) -> None:
    name = "\x1b[2J\x7f\x9b2J\u202eKäfer\ud800"
    echo_json({"name": name})
    said = capsys.readouterr().out
    assert said.isascii()
    assert not {"\x1b", "\x7f"} & set(said)
    assert json.loads(said) == {"name": name}


def test_commands_say_nothing_but_by_that_way() -> None:
    """Of what they print themselves: the help and the version, in which nobody else has a word."""
    bare = {
        f"{file.name}:{line.strip()}"
        for file in CLI.glob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if re.search(r"(?<![\w.])print\(", line)
    }
    allowed = ("print(help_text())", 'print(f"holotype {__version__}")', "print(escape_control(str(text))")
    assert [line for line in bare if not any(words in line for words in allowed)] == []


# -- links ----------------------------------------------------------------------------------------------------


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("mine")
    return tmp_path / "precious"


def test_nothing_is_written_through_a_link_to_a_folder(tmp_path: Path, precious: Path, holotype: Any) -> None:
    """Not even thumbnails: of a run folder that somebody sent, every folder must be one."""
    run = tmp_path / "run"
    make_discovery(tmp_path, 20).save(run)
    for place in ("report", "report/thumbs", "rounds"):
        (run / place).parent.mkdir(exist_ok=True)
        (run / place).symlink_to(precious, target_is_directory=True)
        outcome = holotype("report", run, "--no-progress")
        assert outcome.code == 2
        assert f"{run / place} is a link to another folder" in outcome.err
        (run / place).unlink()
        shutil.rmtree(run / "report", ignore_errors=True)
    (run / "cuts").symlink_to(precious, target_is_directory=True)
    outcome = holotype("cut", run, "--k", "2", "--no-progress")
    assert outcome.code == 2
    assert f"{run / 'cuts'} is a link to another folder" in outcome.err
    assert [path.name for path in precious.iterdir()] == ["file"]


def test_a_run_folder_that_is_a_link_itself_is_its_owners_choice(tmp_path: Path) -> None:
    (tmp_path / "large disk" / "report").mkdir(parents=True)
    (tmp_path / "run").symlink_to(tmp_path / "large disk", target_is_directory=True)
    refuse_links(tmp_path / "run")


def test_links_to_files_are_replaced_and_locks_and_lines_are_not_written_through_them(
    tmp_path: Path, precious: Path
) -> None:
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


def test_what_a_link_leads_to_is_not_mailed(tmp_path: Path, precious: Path) -> None:
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
def test_pictures_from_memory_lie_in_a_folder_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    import numpy as np

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with tempfile.TemporaryDirectory(prefix="holotype-") as folder:
        (path,) = save_images([np.zeros((4, 4), dtype=np.uint8)], Path(folder))
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        assert Path(path).parent == Path(folder)


# -- the hub --------------------------------------------------------------------------------------------------


class Runs:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.file),)


@pytest.mark.parametrize("protocol", ["plain", "torch"])
def test_weights_of_the_hub_run_no_code(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hub, or whoever speaks for it, that hands out a pickle in place of tensors."""
    timm = zoo.import_timm()
    from huggingface_hub.errors import EntryNotFoundError

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


def test_weights_that_changed_on_the_hub_are_noticed(
    tmp_path: Path, squares_folder: Path, tiny_flags, holotype
) -> None:
    """A run knows the digest of the weights it was made with, wherever they come from."""
    run = tmp_path / "run"
    assert holotype("train", "kmeans", squares_folder / "squares.csv", *tiny_flags, "--out", run).code == 0
    sheet = json.loads((run / "model.json").read_text())
    (run / "model.json").write_text(json.dumps(sheet | {"digest": "0" * 64}))
    outcome = holotype("assign", run, squares_folder / "red", "--device", "cpu", "--no-progress")
    assert outcome.code == 2
    assert "is not the one that the model" in outcome.err
