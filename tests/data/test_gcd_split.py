"""The GCD split equals the reference draw, and labels known classes only."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holotype.data.datasets.registry import Benchmark, load_benchmark
from holotype.data.gcd_split import gcd_split, held_out
from holotype.data.table import Table
from holotype.errors import InputError

GOLDEN = np.load(Path(__file__).parents[1] / "parity" / "splits.npz")


def benchmark(label: list[str], known: tuple[str, ...], test: list[str] | None = None) -> Benchmark:
    novel = tuple(sorted(set(label) - set(known)))

    def table(values: list[str], name: str) -> Table:
        path = np.array([f"{name}{i}" for i in range(len(values))], dtype=object)
        return Table(path, np.array(values, dtype=object), known + novel, name=name)

    return Benchmark(
        "made", table(label, "made"), None if test is None else table(test, "made-test"), known, novel
    )


@pytest.mark.parametrize("key", [key for key in GOLDEN.files if key.startswith("n")])
def test_golden_draws(key: str) -> None:
    n = int(key[1:].partition(".")[0])
    # novel images in between must not shift the draw, which counts known-class images only
    label = [name for i in range(n) for name in (["new"] * (i % 3) + ["old"])]
    table = gcd_split(benchmark(label, ("old",)))
    position = np.cumsum(np.array(label) == "old") - 1
    assert sorted(position[table.labelled].tolist()) == sorted(GOLDEN[key].tolist())


@given(
    label=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=40),
    n_known=st.integers(1, 6),
    share=st.floats(0.01, 1.0),
    seed=st.integers(0, 2**32 - 1),
    stratified=st.booleans(),
)
def test_split_is_sound(label: list[str], n_known: int, share: float, seed: int, stratified: bool) -> None:
    known = tuple(reversed("abcdef"[:n_known]))
    made = benchmark(label, known)
    table = gcd_split(made, share=share, seed=seed, stratified=stratified)
    true = made.train.label
    assert table.path.tolist() == made.train.path.tolist()
    assert table.known == known
    assert table.to_frame()["truth"].tolist() == label
    assert set(table.label[table.labelled]) <= set(known)
    assert (table.label[table.labelled] == true[table.labelled]).all()
    counts = [sum(c == name for c in label) for name in known]
    if stratified:
        per_class = [int((table.label == name).sum()) for name in known]
        assert per_class == [min(n, max(1, int(share * n))) for n in counts]
    else:
        assert table.labelled.sum() == int(share * sum(counts))
    again = gcd_split(made, share=share, seed=seed, stratified=stratified)
    assert again.fingerprint() == table.fingerprint()


def test_the_seed_changes_the_draw_and_nothing_else_does() -> None:
    sample = load_benchmark("fashion-sample")
    first = gcd_split(sample)
    np.random.seed(3)
    assert gcd_split(sample).fingerprint() == first.fingerprint()
    assert gcd_split(sample, seed=1).fingerprint() != first.fingerprint()
    assert (len(first), int(first.labelled.sum())) == (1000, 250)


def test_splitting_leaves_the_global_generator_alone() -> None:
    np.random.seed(5)
    expected = np.random.rand()
    np.random.seed(5)
    gcd_split(load_benchmark("fashion-sample"))
    assert np.random.rand() == expected


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, float("nan")])
def test_impossible_shares_are_refused(share: float) -> None:
    with pytest.raises(InputError, match="share"):
        gcd_split(benchmark(["a", "b"], ("a",)), share=share)


def test_held_out_hides_the_labels() -> None:
    table = held_out(benchmark(["a", "b"], ("a",), test=["b", "a", "a"]))
    assert table is not None
    assert not table.labelled.any()
    assert table.known == ("a",)
    assert table.to_frame()["truth"].tolist() == ["b", "a", "a"]
    assert table.name == "made-test"
    assert held_out(benchmark(["a", "b"], ("a",))) is None
