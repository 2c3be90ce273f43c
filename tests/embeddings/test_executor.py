"""Slices one after the other: what fails is tried once more, and what stops stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from holotype.embeddings.executor import (
    MAX_CONSECUTIVE_FAILURES,
    error_reason,
    run_shards,
    run_with_retry,
    shard_of_process,
)
from holotype.errors import InputError, Stopped


def test_each_slice_is_done_once_and_told() -> None:
    told: list[tuple[int, int]] = []
    assert run_shards(lambda number: number * 10, [3, 1, 2], lambda *both: told.append(both)) == {}
    assert told == [(3, 30), (1, 10), (2, 20)]


def test_a_failure_is_that_slices_own() -> None:
    def job(number: int) -> None:
        if number == 1:
            raise OSError("the disk\nis gone")

    done: list[int] = []
    assert run_shards(job, range(3), lambda number, _: done.append(number)) == {
        1: "OSError: the disk is gone"
    }
    assert done == [0, 2]


def test_a_stop_ends_it() -> None:
    def job(number: int) -> None:
        raise Stopped("image 3 of 7")

    with pytest.raises(Stopped):
        run_shards(job, range(3), lambda *_: None)


def test_what_fails_every_time_is_not_tried_for_ever() -> None:
    tried: list[int] = []

    def job(number: int) -> None:
        tried.append(number)
        raise ValueError("no")

    assert len(run_shards(job, range(1000), lambda *_: None)) == MAX_CONSECUTIVE_FAILURES
    assert len(tried) == MAX_CONSECUTIVE_FAILURES


def test_failures_apart_do_not_count_together() -> None:
    def job(number: int) -> None:
        if number % 2:
            raise ValueError("odd")

    assert len(run_shards(job, range(100), lambda *_: None)) == 50


def test_failed_slices_get_a_second_try() -> None:
    tries: list[int] = []

    def job(number: int) -> None:
        tries.append(number)
        if number == 2 or (number == 1 and tries.count(1) == 1):
            raise ValueError("not now")

    noted: list[dict[int, str]] = []
    left = run_with_retry(lambda *both: run_shards(job, *both), range(4), lambda *_: None, noted.append)
    assert left == {2: "ValueError: not now"}
    assert tries == [0, 1, 2, 3, 1, 2]
    assert [sorted(one) for one in noted] == [[1, 2], [2]]


def test_reasons_are_one_line() -> None:
    assert error_reason(InputError("A sentence.")) == "A sentence."
    assert "\n" not in error_reason(ValueError("a\nb"))


@pytest.mark.parametrize(("text", "is_"), [("1/1", (0, 1)), ("2/4", (1, 4)), ("4/4", (3, 4))])
def test_shares(text: str, is_: tuple[int, int]) -> None:
    assert shard_of_process(text) == is_


@pytest.mark.parametrize("text", ["0/4", "5/4", "x", "1", "1/", "-1/4", "1/0", "1.5/4", "", "1/4/2", "٣/4"])
def test_what_is_no_share_is_one_sentence(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no share of the work"):
        shard_of_process(text)
