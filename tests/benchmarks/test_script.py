"""Mistakes end a script with one sentence; a record that is none is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from script import one_sentence, read_record

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
