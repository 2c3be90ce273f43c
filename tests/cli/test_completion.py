"""What is completed is what the commands take: read from their parsers, and from the settings of train."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest

from holotype.cli import COMMANDS, FLAGS
from holotype.cli.completion import CompletionEntry, literal_values, read_entries
from holotype.data.datasets.registry import BENCHMARKS
from holotype.methods import METHODS

from .test_completion_shells import completed


@pytest.fixture(scope="module")
def entries() -> dict[str, CompletionEntry]:
    return {entry.name: entry for entry in read_entries()}


def test_every_command_is_there_with_the_flags_of_all(entries: dict[str, CompletionEntry]) -> None:
    assert list(entries) == list(COMMANDS)
    for entry in entries.values():
        names = [flag.name for flag in entry.flags]
        assert {"--help", *FLAGS} <= set(names)
        assert len(names) == len(set(names))


def test_names_are_offered_where_they_can_stand(entries: dict[str, CompletionEntry]) -> None:
    methods, datasets = tuple(METHODS), tuple(BENCHMARKS)
    assert entries["train"].places == [methods, datasets]
    assert entries["methods"].places == [methods]
    assert entries["data"].places == [("check", "list"), datasets]
    assert entries["embed"].places == [datasets]
    assert entries["discover"].places == [()]
    assert entries["completion"].places == [("bash", "zsh", "fish")]


def test_values_are_offered_where_they_are_few(entries: dict[str, CompletionEntry]) -> None:
    train = {flag.name: flag for flag in entries["train"].flags}
    assert set(train["--preset"].choices) >= {"default", "as_run", "light"}
    assert train["--store"].choices == ("auto", "device", "host", "disk")
    assert train["--progress"].choices == ("true", "false")
    assert "embedded" in train["--backbone.name"].choices
    assert train["--train.epochs"].valued
    assert not train["--train.epochs"].choices
    assert not train["--print_config"].valued
    discover = {flag.name: flag for flag in entries["discover"].flags}
    assert discover["--method"].choices == tuple(METHODS)
    assert discover["--long-tail"].valued
    bench = {flag.name: flag for flag in entries["bench"].flags}
    assert bench["--datasets"].choices == tuple(BENCHMARKS)


def test_types_that_name_words() -> None:
    assert list(literal_values(Annotated[Literal["a", "b"], "rule"] | None)) == ["a", "b"]
    assert list(literal_values(int | bool)) == ["true", "false"]
    assert list(literal_values(str)) == []


def test_from_the_command_to_the_shell(holotype) -> None:
    outcome = holotype("completion", "bash")
    assert outcome.code == 0
    assert completed(outcome.out, "holotype", "train", "sim") == ["simgcd"]
    assert completed(outcome.out, "holotype", "train", "rpc", "cub", "--train.ep") == ["--train.epochs"]
    assert completed(outcome.out, "holotype", "doc") == ["doctor"]
    outcome = holotype("completion", "tcsh")
    assert outcome.code == 2
    assert "tcsh" in outcome.err
