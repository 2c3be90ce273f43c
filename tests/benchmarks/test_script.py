"""Mistakes end a script with one sentence; a record that is none is said."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from script import add_record, add_roots, one_sentence, read_record, read_rows, roots_of

from holotype.errors import InputError


def test_bad_input_is_a_sentence_on_stderr_and_exit_code_2(capsys) -> None:
    @one_sentence
    def main(code: int, sentence: str = "") -> int:
        if sentence:
            raise InputError(sentence)
        return code

    assert (main(0), main(1)) == (0, 1)
    assert main(0, sentence="No such study.") == 2
    assert capsys.readouterr().err == "No such study.\n"


def test_other_errors_are_not_hidden() -> None:
    @one_sentence
    def main() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        main()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "cannot be read"),
        ("3", "cannot be read"),
        ('{"rows": []}', "is no file of benchmarks/speed.py: it lacks command"),
    ],
)
def test_a_file_that_is_no_record(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(InputError, match=told):
        read_record(tmp_path / "x.json", ("rows", "command"), "speed.py")


def test_a_study_without_a_record_has_no_rows(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "x.json", "votes.py") == {}
    (tmp_path / "x.json").write_text('{"rows": {"cub0": 1}}')
    assert read_rows(tmp_path / "x.json", "votes.py") == {"cub0": 1}


def test_only_folders_that_were_given_are_named() -> None:
    parser = argparse.ArgumentParser()
    add_roots(parser)
    add_record(parser, Path("x.json"))
    given = parser.parse_args(["--cifar", "there", "--table"])
    assert roots_of(given) == {"cifar": Path("there")}
    assert (given.out, given.table) == (Path("x.json"), True)
