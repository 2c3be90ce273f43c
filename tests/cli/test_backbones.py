"""`holotype backbones` lists what to take, and says where its seconds come from."""

from __future__ import annotations

import pytest

from holotype.models import zoo as speed
from holotype.models.zoo import RECOMMENDED, USES


def test_every_use_is_listed_with_recorded_seconds(holotype) -> None:
    done = holotype("backbones")
    assert done.code == 0
    for use in USES:
        assert f"{use}: " in done.out
    for one in {one for several in RECOMMENDED.values() for one in several}:
        line = next(line for line in done.out.splitlines() if line.strip().startswith(one.name + " "))
        words = line.split()
        assert words[2] == str(one.image_size)
        assert float(words[3]) > 0  # the record has all of them
        assert words[4] == one.licence + ("*" if one.licence == "dinov3-license" else "")
    assert "from a record" in " ".join(done.out.split())


def test_one_use_is_measured_on_request(holotype, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fake(arch, size, device, dtype):
        asked.append((arch, size))
        return speed.Speed(86_000_000, 12.5)

    monkeypatch.setattr(speed, "measure_speed", fake)
    done = holotype("backbones", "nature", "--measure", "--device", "cpu")
    assert done.code == 0
    assert sorted(asked) == sorted({(one.arch, one.image_size) for one in RECOMMENDED["nature"]})
    assert "12.5" in done.out
    assert "measured now" in " ".join(done.out.split())
    assert "medical" not in done.out


def test_bad_input(holotype) -> None:
    done = holotype("backbones", "food")
    assert done.code == 2
    assert (
        done.err.strip() == "There is no list for 'food'; the lists are photos, nature, medical, industrial."
    )


def test_fetch_says_what_was_written_and_how_to_use_it(holotype, monkeypatch, tmp_path) -> None:
    from holotype.models import backbone

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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["fetch"], "needs a name"),
        (["fetch", "vit_smal_patch16_224.dino"], "did you mean vit_small_patch16_224.dino"),
        (["fetch", "embedded", "--measure"], "leave it out"),
        (["nature", "--to", "x"], "belong to fetch"),
    ],
)
def test_fetch_with_bad_words(holotype, words, says) -> None:
    done = holotype("backbones", *words)
    assert done.code == 2
    assert says in done.err
    assert done.err.count("\n") == 1
