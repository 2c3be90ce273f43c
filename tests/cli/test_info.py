"""`holotype methods`, `holotype backbones` and `holotype data`: lists, cards, one backbone in a file, bad words."""

from pathlib import Path

import pytest

from holotype.cli import info
from holotype.data.datasets.registry import BENCHMARKS
from holotype.methods import METHODS
from holotype.models import backbone, zoo
from holotype.models.zoo import RECOMMENDED, USES
from holotype.runs.method_info import method_info, published_rows

from .conftest import assert_sentence

TOP = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("methods dcll", "did you mean dccl?"),
        ("methods no.such:Method", "cannot be imported"),
        ("methods dccl rpc", "does not know 'rpc'"),
        ("methods --all", "does not know '--all'"),
        ("backbones food", "the lists are photos, nature, medical, industrial"),
        ("backbones nature --to x", "belong to fetch"),
        ("backbones fetch", "needs a name"),
        ("backbones fetch vit_smal_patch16_224.dino", "did you mean vit_small_patch16_224.dino"),
        ("backbones fetch embedded --measure", "leave it out"),
    ],
)
def test_bad_words_are_one_sentence(words: str, told: str, holotype) -> None:
    assert_sentence(holotype(*words.split()), told)


def test_data_sets_are_listed_and_checked(holotype) -> None:
    outcome = holotype("data", "list")
    assert outcome.code == 0
    assert all(name in outcome.out for name in BENCHMARKS)
    assert holotype("data").out == outcome.out
    outcome = holotype("data", "check", "fashion-sample")
    assert (outcome.code, "ready" in outcome.out) == (0, True)


def test_a_line_for_each_method(holotype) -> None:
    head, *lines = holotype("methods").out.splitlines()
    assert head.split()[:5] == ["method", "year", "stages", "cache", "graph"]
    for line, (name, kind) in zip(lines[: len(METHODS)], METHODS.items(), strict=True):
        assert line.split()[:2] == [name, str(kind.card.year)]
        assert kind.card.line.startswith(line[line.index(kind.card.line[:20]) :])  # its first sentence


@pytest.mark.parametrize("name", [*METHODS, "cms:CMS", "my_method:Mine"])
def test_every_card_is_printed(name: str, holotype, monkeypatch) -> None:
    """Also of a method of one's own, with a card or without."""
    monkeypatch.syspath_prepend(str(TOP / "examples"))
    outcome = holotype("methods", name)
    assert outcome.code == 0, outcome.err
    flat, kind = " ".join(outcome.out.split()), METHODS.get(name)
    assert ("It has no card." in flat) == (name == "my_method:Mine")
    assert ("Nothing is trained" in flat) == (not method_info(name).stages)
    assert ("Nothing is printed of it" in flat) == (not published_rows(name))
    assert ("all data sets: train.lr = 0.05" in flat) == (name == "cms:CMS")
    if kind:
        assert all(part in flat for part in (kind.card.title, kind.card.line, f"docs/methods/{name}.md"))
        assert all(f"- {point}" in flat for point in kind.card.differs)
    if name == "dccl":
        assert "L = (1 - lam) L_con_u + lam L_con_s + w(e) L_C" in flat
        assert "as_run: method.edges = none" in flat
        assert "cub 63.5 60.8 64.9 1.12 scars 43.1 55.7 36.2* 0.74*" in flat


def test_every_use_is_listed_with_recorded_seconds(holotype) -> None:
    done = holotype("backbones")
    assert done.code == 0
    assert all(f"{use}: " in done.out for use in USES)
    for one in {one for several in RECOMMENDED.values() for one in several}:
        words = next(line for line in done.out.splitlines() if f" {one.name} " in line).split()
        assert words[2] == str(one.image_size)
        assert float(words[3]) > 0  # the record has all of them
        assert words[4] == one.licence + ("*" if one.licence == "dinov3-license" else "")
    assert "from a record" in " ".join(done.out.split())


def test_one_use_is_measured_on_request(holotype, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    speed = lambda arch, size, *_: asked.append((arch, size)) or zoo.Speed(86_000_000, 12.5)  # noqa: E731
    monkeypatch.setattr(zoo, "measure_speed", speed)
    done = holotype("backbones", "nature", "--measure", "--device", "cpu")
    assert (done.code, "12.5" in done.out, "medical" in done.out) == (0, True, False)
    assert sorted(asked) == sorted({(one.arch, one.image_size) for one in RECOMMENDED["nature"]})
    assert "measured now" in " ".join(done.out.split())
    assert info.speed_cells(RECOMMENDED["nature"][0], {})[1] == ""  # a network that nobody has measured


def test_fetch_says_what_was_written_and_how_to_use_it(holotype, monkeypatch, tmp_path) -> None:
    tags = {"timm": "vit_x.y", "image_size": "224", "license": "dinov3-license", "source": "vit_x.y"}
    asked = []

    def fake(name, folder):
        asked.append((name, folder))
        return backbone.DownloadedBackbone(folder / "vit_x.y.safetensors", 2_000_000, tags)

    monkeypatch.setattr(backbone, "download_backbone", fake)
    done = holotype("backbones", "fetch", "vit_x.y", "--to", tmp_path)
    assert (done.code, asked) == (0, [("vit_x.y", tmp_path)])
    assert "DINOv3 licence" in done.out
    assert "--backbone vit_x.y.safetensors" in done.out
