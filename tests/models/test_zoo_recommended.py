"""The list of backbones names networks that there are, under licences that they have."""

from __future__ import annotations

from holotype.models.licences import has_conditions
from holotype.models.zoo import RECOMMENDED, USES, licence_of, model_outline


def test_every_use_has_a_list_that_begins_without_strings() -> None:
    assert list(RECOMMENDED) == list(USES) == ["photos", "nature", "medical", "industrial"]
    assert not any(has_conditions(several[0].licence) for several in RECOMMENDED.values())


def test_networks_and_licences_are_timms() -> None:
    for one in {one for several in RECOMMENDED.values() for one in several}:
        outline = model_outline(one.arch)
        assert one.image_size % outline.patch_embed.feat_ratio() == 0
        if ":" not in one.name and one.name != "embedded":
            assert one.name.partition(".")[0] == one.arch
            assert one.licence == licence_of(one.name)
