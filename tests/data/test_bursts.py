"""Bursts: which frames belong together, what counts once, and whose labels they take."""

import unicodedata

import numpy as np
import pytest

from holotype.data.bursts import SECONDS, count_units, find_bursts, one_per_burst, spread_labels, with_groups
from holotype.data.exif import NO_EXIF, ExifData
from holotype.data.table import Table, burst_units, first_frames

TRAP = "trap 7"


def made(paths: list[str], label: list[str] | None = None, group: list[str] | None = None) -> Table:
    label = label or [""] * len(paths)
    return Table(
        path=np.array([f"/photos/{path}" for path in paths], dtype=object),
        label=np.array(label, dtype=object),
        known=tuple(sorted(set(label) - {""})),
        group=None if group is None else np.array(group, dtype=object),
        root="/photos",
    )


def shots(*seconds: float | None, camera: str = TRAP, serial: bool = True) -> list[ExifData]:
    def one(at: float | None) -> ExifData:
        if at is None:
            return NO_EXIF
        time = f"{int(at) // 3600:02d}:{int(at) // 60 % 60:02d}:{int(at) % 60:02d}"
        return ExifData(f"2024-05-01T{time}", camera=camera, serial=serial)

    return [one(at) for at in seconds]


def looks(*kinds: int) -> np.ndarray:
    """(n, 8) features: one direction for each kind, nearly."""
    noise = np.random.default_rng(0).normal(0, 0.05, (len(kinds), 8))
    return (np.eye(8)[list(kinds)] + noise).astype(np.float32)


def test_frames_of_one_camera_within_seconds_that_look_alike_and_no_camera_that_never_rests() -> None:
    paths = [f"{name}.jpg" for name in "abcdefg"]
    found = find_bursts(made(paths), shots(0, 2, 4, 30, 31, 32, 200), looks(0, 0, 0, 1, 1, 2, 3))
    assert found == ["a.jpg", "a.jpg", "a.jpg", "d.jpg", "d.jpg", "", ""]
    # they need not come in their order
    found = find_bursts(made(["c.jpg", "a.jpg", "b.jpg", "x.jpg"]), shots(4, 0, 2, 900), looks(0, 0, 0, 1))
    assert found == ["a.jpg", "a.jpg", "a.jpg", ""]
    table, taken, features = made(["a.jpg", "b.jpg", "c.jpg"]), shots(0, 30, 900), looks(0, 0, 1)
    assert find_bursts(table, taken, features) == ["", "", ""]
    assert find_bursts(table, taken, features, seconds=30) == ["a.jpg", "a.jpg", ""]
    paths = [f"{n:03d}.jpg" for n in range(40)] + ["x.jpg"]
    found = find_bursts(made(paths), shots(*(5 * n for n in range(40)), 9000), looks(*[0] * 40, 1))
    assert 3 <= len(set(found) - {""}) <= 5
    assert max(found.count(name) for name in set(found)) <= 6 * SECONDS / 5 + 1


def test_other_cameras_and_folders_are_other_bursts() -> None:
    two = [*shots(0, 1, camera="trap 1"), *shots(0, 1, camera="trap 2"), *shots(9000)]
    table = made(["a.jpg", "b.jpg", "c.jpg", "d.jpg", "x.jpg"])
    assert find_bursts(table, two, looks(0, 0, 0, 0, 1)) == ["a.jpg", "a.jpg", "c.jpg", "c.jpg", ""]
    nameless = shots(0, 1, 0, 1, 9000, camera="HP2X", serial=False)
    table = made(["north/a.jpg", "north/b.jpg", "south/a.jpg", "south/b.jpg", "x.jpg"])
    found = find_bursts(table, nameless, looks(0, 0, 0, 0, 1))
    assert found == ["north/a.jpg", "north/a.jpg", "south/a.jpg", "south/a.jpg", ""]


def test_folders_of_labels_part_no_burst() -> None:
    table = made(["fox/north/a.jpg", "unlabelled/north/b.jpg", "deer/x.jpg"], ["fox", "", "deer"])
    taken, features = shots(0, 1, 9000, camera="HP2X", serial=False), looks(0, 0, 1)
    found = find_bursts(table, taken, features)
    assert found == ["fox/north/a.jpg", "fox/north/a.jpg", ""]
    listed = made(["fox/north/a.jpg", "fox/north/b.jpg", "deer/x.jpg"], ["fox", "", "deer"])
    assert find_bursts(listed, taken, features) == ["fox/north/a.jpg", "fox/north/a.jpg", ""]
    apart = unicodedata.normalize("NFD", "é")  # as a Mac writes it
    mac = made([f"{apart}/north/a.jpg", "unlabelled/north/b.jpg", "deer/x.jpg"], ["é", "", "deer"])
    assert find_bursts(mac, taken, features) == [f"{apart}/north/a.jpg"] * 2 + [""]
    moved = made(["fox/north/a.jpg", "unlabelled/north/b.jpg", "deer/x.jpg"], ["new-01", "", "deer"])
    assert find_bursts(moved, taken, features) == ["", "", ""]  # a folder like any other
    assert find_bursts(moved, taken, features, words={"fox"}) == ["fox/north/a.jpg", "fox/north/a.jpg", ""]


def test_different_labels_and_what_cannot_be_read_or_has_no_time_are_no_burst() -> None:
    table = made(["a.jpg", "b.jpg", "c.jpg", "x.jpg"], ["fox", "", "deer", "deer"])
    assert find_bursts(table, shots(0, 1, 2, 9000), looks(0, 0, 0, 1)) == ["a.jpg", "a.jpg", "", ""]
    table = made(["a.jpg", "b.jpg", "c.jpg", "x.jpg"]).with_problems(["", "cut off", "", ""])
    assert find_bursts(table, shots(0, 1, None, 9000), looks(0, 0, 0, 1)) == ["", "", "", ""]
    assert find_bursts(table.with_problems(["cut off"] * 4), shots(0, 1, 2, 3), looks(0, 0, 0, 0)) == [""] * 4


def test_a_burst_counts_once_and_a_table_carries_its_groups() -> None:
    table = made(list("abcdef"), ["fox", "fox", "", "deer", "", ""], ["1", "1", "", "1", "2", "2"])
    assert burst_units(table).tolist() == [0, 0, 1, 2, 3, 3]
    assert one_per_burst(table).tolist() == [True, False, True, True, True, False]
    assert count_units(table) == 4
    assert first_frames(burst_units(table), np.array([5, 4, 1, 0])).tolist() == [5, 1]
    broken = table.with_problems(["cut off", "", "", "", "", ""])
    assert one_per_burst(broken).tolist() == [False, True, True, True, True, False]
    alone = made(list("ab"))
    assert burst_units(alone) is None
    assert one_per_burst(alone).all()
    assert count_units(alone) == 2
    table = made(list("abc"), group=["1", "1", ""])
    assert list(table.take([2, 0]).group) == ["", "1"]
    assert with_groups(table, ["1", "2", ""]).group is None
    assert with_groups(table.with_problems(["", "cut off", ""]), ["1", "1", ""]).group is None
    assert list(with_groups(table, ["2", "", "2"]).group) == ["2", "", "2"]


@pytest.mark.parametrize("out", [False, True])
def test_frames_take_the_label_of_their_burst(out: bool) -> None:
    table = made(list("abcdefg"), ["fox", "", "", "fox", "deer", "", ""], ["1", "1", "", "2", "2", "2", ""])
    spread = spread_labels(table, np.array([False, out, *[False] * 5]))
    assert list(spread.table.label) == ["fox", "" if out else "fox", "", "fox", "deer", "", ""]
    assert spread.rows.tolist() == ([] if out else [1])
    assert spread.torn == ["2"]
    assert spread_labels(made(list("ab")), np.zeros(2, bool)).torn == []
