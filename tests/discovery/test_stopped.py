"""A discovery whose rounds were stopped: it goes on, or says why not."""

from __future__ import annotations

import pandas as pd
import pytest

from holotype.data.load import load_table
from holotype.discovery.pipeline import discover_table
from holotype.errors import InputError, Stopped
from holotype.training.checkpoint import save_checkpoint
from holotype.utils.locks import lock_folder
from tests.cli.test_bad_input import pressed
from tests.discovery.made_round import edits_file


def test_a_round_that_was_stopped_is_not_taken_for_another(run, squares_folder, small, monkeypatch) -> None:
    """Labels were confirmed, its training was stopped, and more labels came: it stays, and the next one is trained."""
    table = load_table(squares_folder / "squares.csv")
    blue = [path for path in table.path if "blue" in path][:6]
    with monkeypatch.context() as patch:
        patch.setattr("holotype.training.progress.StopRequest.__enter__", pressed)
        file = edits_file(run, *[("confirm", path, "", "blue") for path in blue[:3]])
        with pytest.raises(Stopped):
            discover_table(table, small(), run, progress=False, edits=file)
    state = (run / "rounds" / "2" / "state.json").read_bytes()
    file = edits_file(run, *[("confirm", path, "", "blue") for path in blue])
    found = discover_table(table, small(), run, progress=False, edits=file)
    assert (found.facts.round, found.facts.confirmed_labels) == (3, 6)
    assert (run / "rounds" / "2" / "state.json").read_bytes() == state


def test_a_half_deleted_round_does_not_go_on_with_old_weights(run, squares_folder, small) -> None:
    """What is left of another training is refused, and told; nothing is learned from it in silence."""
    table = load_table(squares_folder / "squares.csv")
    blue = [path for path in table.path if "blue" in path][:6]
    file = edits_file(run, *[("confirm", path, "", "blue") for path in blue])
    found = discover_table(table, small(), run, progress=False, edits=file)
    own = run / "rounds" / "2"
    for name in ("scores.json", "identity.json"):
        (own / name).unlink()
    save_checkpoint(own, {}, {"counter": 1, "identity": "another"})
    with pytest.raises(InputError, match="training state of another run"):
        discover_table(table, small(), run, progress=False)
    (own / "state.json").unlink()
    again = discover_table(table, small(), run, progress=False)
    columns = ["path", "category_id", "probability"]
    pd.testing.assert_frame_equal(again.images[columns], found.images[columns])


def test_two_commands_do_not_work_in_one_folder(run, squares_folder, small) -> None:
    with lock_folder(run), pytest.raises(InputError):
        discover_table(load_table(squares_folder / "squares.csv"), small(), run, progress=False)


def test_what_only_an_unfinished_round_needs_goes_with_the_next_command(run, squares_folder, small) -> None:
    """A kill at the very end of a round: its result is there, and its state is too."""
    own = run / "rounds" / "1"
    for name in ("state.json", "state-00000008.safetensors", "rest/manifest.json", "trainings/5/state.json"):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text("left")
    before = (own / "scores.json").read_bytes()
    discover_table(load_table(squares_folder / "squares.csv"), small(), run, progress=False)
    left = [name for name in ("state.json", "rest", "trainings") if (own / name).exists()]
    assert left + [file.name for file in own.glob("state-*")] == []
    assert (own / "scores.json").read_bytes() == before
    assert not (run / "rounds" / "2").exists()
