"""Methods that take turns: those that can train do, and the others say why not."""

from __future__ import annotations

import pytest

from holotype.config.schema import BackboneConfig
from holotype.data.load import load_table
from holotype.discovery.ensemble_training import applicable_methods
from holotype.errors import InputError
from holotype.models.backbone import Backbone, load_backbone
from holotype.runs.build import RunData


@pytest.fixture(scope="module")
def backbone(tiny_backbone_file) -> Backbone:
    return load_backbone(BackboneConfig(str(tiny_backbone_file)))


@pytest.fixture
def data(squares_folder) -> RunData:
    return RunData(load_table(squares_folder / "squares.csv"), 4)


def test_all_that_can_train_do_in_their_order(data: RunData, backbone: Backbone) -> None:
    assert applicable_methods(["uno", "rpc"], data, backbone) == (("uno", "rpc"), [])


def test_without_a_new_category_uno_leaves_its_turns(data: RunData, backbone: Backbone) -> None:
    able, (remark,) = applicable_methods(["rpc", "uno"], RunData(data.table, 2), backbone)
    assert able == ("rpc",)
    assert remark.startswith("uno does not take part. ")
    assert "2" in remark


def test_different_sizes_are_for_methods_that_can_expect_them(data: RunData, backbone: Backbone) -> None:
    able, remarks = applicable_methods(["rpc", "uno"], data, backbone, long_tail=True)
    assert able == ("rpc",)
    assert remarks == ["uno does not take part. It expects categories of equal size, and those here differ."]


def test_where_none_can_train_the_first_says_why(data: RunData, backbone: Backbone) -> None:
    with pytest.raises(InputError, match="novel"):
        applicable_methods(["uno"], RunData(data.table, 2), backbone)
