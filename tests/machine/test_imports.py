"""Imports without garbage collection, and collection as it was afterwards."""

import gc
import warnings

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


def test_a_notebook_without_widgets_hears_no_complaint_of_it() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with importing():
            warnings.warn("IProgress not found. Please update jupyter and ipywidgets.", stacklevel=1)
            warnings.warn("something else", stacklevel=1)
    assert [str(one.message) for one in heard] == ["something else"]
