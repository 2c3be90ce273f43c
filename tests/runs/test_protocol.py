"""The protocol as settings: which images are labelled, which are scored, and what that makes of a run."""

import dataclasses
from collections import Counter

import numpy as np
import pytest

from holotype.data.datasets.registry import load_benchmark
from holotype.data.gcd_split import gcd_split, hold_out
from holotype.errors import InputError
from holotype.runs.experiment import resolve
from holotype.runs.identity import identity_matches, identity_outline
from holotype.runs.resources import load_data
from holotype.runs.run import run_experiment

SAMPLE = load_benchmark("fashion-sample")


def data(dataset="fashion-sample", **protocol):
    overrides = {f"protocol.{key}": value for key, value in protocol.items()}
    return load_data(resolve("simgcd", str(dataset), overrides=overrides))


def labelled(table) -> Counter:
    return Counter(table.label[table.labelled])


def test_the_defaults_are_the_gcd_split():
    found = data()
    assert found.table.fingerprint() == gcd_split(SAMPLE).fingerprint()
    assert (found.k, found.test) == (10, None)


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_a_share_of_each_class_or_of_all(share):
    each = Counter(SAMPLE.train.label)
    even = labelled(data(label_share=share, stratified=True).table)
    assert even == {name: max(1, int(share * each[name])) for name in SAMPLE.known}
    whole = labelled(data(label_share=share).table)
    assert sum(whole.values()) == int(share * sum(each[name] for name in SAMPLE.known))


def test_other_seeds_draw_other_images():
    assert data(split_seed=1).table.fingerprint() == gcd_split(SAMPLE, seed=1).fingerprint()
    assert data(split_seed=1).table.fingerprint() != data().table.fingerprint()


def test_a_file_names_the_known_classes(tmp_path):
    file = tmp_path / "hard.txt"
    file.write_text(f"{SAMPLE.novel[0]}\n\n{SAMPLE.known[0]}\n")
    found = data(known=file)
    assert found.table.known == (SAMPLE.novel[0], SAMPLE.known[0])
    assert set(labelled(found.table)) == set(found.table.known)
    assert found.k == 10
    file.write_text("Zebra\n")
    with pytest.raises(InputError, match="'Zebra', which is no class of fashion-sample"):
        data(known=file)
    with pytest.raises(InputError, match="cannot be read"):
        data(known=tmp_path / "absent.txt")


def test_images_held_out_are_never_trained_on():
    found = data(test_share=0.2)
    assert not {*found.table.path} & {*found.test.path}
    assert len(found.table) + len(found.test) == len(SAMPLE.train)
    each, out = Counter(SAMPLE.train.label), Counter(found.test.classes)
    assert out == {name: int(0.2 * n) for name, n in each.items()}
    assert not found.test.labelled.any()


def test_a_collection_of_ones_own(squares_folder):
    """All of its classes are known by the column truth: labels are drawn anew only if that is asked for."""
    file = squares_folder / "squares.csv"
    drawn = data(file, label_share=0.25)
    assert drawn.k == 4
    assert sum(labelled(drawn.table).values()) == 8
    table = load_data(resolve("simgcd", str(file), overrides={"k": 4, "protocol.test_share": 0.5}))
    assert labelled(table.table) == {"green": 8, "red": 8}
    assert Counter(table.test.classes) == {"green": 4, "red": 4, "blue": 8, "yellow": 8}
    with pytest.raises(InputError, match=r"protocol\.\* needs labels"):
        data(squares_folder / "unlabelled", label_share=0.25)


def test_rows_without_a_class_stay():
    table = dataclasses.replace(SAMPLE.train, label=np.where(np.arange(1000) < 10, "", SAMPLE.train.label))
    rest, rows = hold_out(table, 0.5, 0)
    assert set(table.path[:10]) <= set(rest.path)
    assert len(rows) + len(rest) == len(table)


def test_scores_of_test_images_and_the_identity(tiny):
    """The defaults leave no trace in an identity; whatever differs is a part of it, and finds its own records alone."""
    usual = run_experiment(tiny(out="usual"))
    out = run_experiment(tiny(out="out", protocol__test_share=0.5))
    inductive = run_experiment(tiny(out="inductive", protocol__test_share=0.5, protocol__inductive=True))
    assert "protocol" not in usual.identity.data
    assert inductive.identity.data["protocol"] == {"test_share": 0.5, "inductive": True}
    assert inductive.scores == out.test
    assert inductive.test is None
    assert out.scores.n + out.test.n == usual.scores.n
    assert len({record.identity.hash for record in (usual, out, inductive)}) == 3
    for settings, record in (({}, usual), ({"protocol__test_share": 0.5}, out)):
        outline = identity_outline(tiny(**settings))
        assert [identity_matches(one.identity, outline) for one in (usual, out, inductive)] == [
            one is record for one in (usual, out, inductive)
        ]
    with pytest.raises(InputError, match="no test images"):
        run_experiment(tiny(out="none", protocol__inductive=True))
