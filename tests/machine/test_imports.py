"""Imports without garbage collection, and collection as it was afterwards."""

import gc

import pytest

from holotype.machine.imports import importing


def test_collection_rests_and_goes_on() -> None:
    assert gc.isenabled()
    with importing():
        assert not gc.isenabled()
        with importing():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collection_goes_on_after_a_failure() -> None:
    with pytest.raises(ImportError), importing():
        raise ImportError
    assert gc.isenabled()


def test_who_has_switched_it_off_keeps_it_off() -> None:
    gc.disable()
    try:
        with importing():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
