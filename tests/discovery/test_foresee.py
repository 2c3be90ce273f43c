"""A first look at a discovery that goes on says whether another round would be trained, and it is right."""

from __future__ import annotations

from holotype.data.sources import load_table
from holotype.discovery.going_on import foresee
from holotype.discovery.rounds import take_edits
from holotype.discovery.workflow import discover_table
from tests.discovery.made_round import edits_file


def test_it_tells_of_edits_that_no_round_has_seen(squares_folder, small, tmp_path) -> None:
    run, table, asked = tmp_path / "run", load_table(squares_folder), small(method="kmeans")
    found = discover_table(table, asked, run, progress=False)
    image, category = found.images.loc[found.images.kind == "novel", ["path", "category_id"]].iloc[0]
    take_edits(run, edits_file(run, ("confirm", image, "", category)))
    told = foresee(run, table, asked).splitlines()
    assert told[1:] == ["Edits say more than round 1 was told.", "Another round would be trained."]
    assert discover_table(table, asked, run, progress=False).facts.round == 2
    assert foresee(run, table, asked).endswith("What it found would stand.")
    assert discover_table(table, asked, run, progress=False).facts.round == 2
