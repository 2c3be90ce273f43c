"""Loading backbones: embedded, local file, hub; pool and normalisation; bad input."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from holotype.config.schema import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    BackboneConfig,
    as_rgb,
    requested_backbone,
    resolved_backbone,
)
from holotype.errors import InputError
from holotype.models.backbone import expected_pool, load_backbone
from holotype.models.heads import CompactOVA, CosineClassifier, Projector
from holotype.models.tail import AbsorbedTail, RotaryTail, WholeTail, split_backbone
from holotype.models.weights_io import CAVEAT, EMBEDDED

TINY = "vit_tiny_patch16_224"
PUBLISHED_HEADS = True  # conftest.py leaves them as wide as they are


def test_embedded() -> None:
    state = torch.random.get_rng_state()
    found = load_backbone(BackboneConfig())
    assert torch.equal(torch.random.get_rng_state(), state)  # nothing is drawn from the caller's generator
    assert (found.dim, found.image_size, found.name) == (192, 128, "embedded")
    assert (found.mean, found.std, found.caveat) == (IMAGENET_MEAN, IMAGENET_STD, CAVEAT)
    assert found.digest == "3b54bfcb1e28e11cf68e86ad7f7ac5b75676237282d9eac2be8713e9201a683d"
    assert type(found.tail) is AbsorbedTail
    assert {p.dtype for m in (found.trunk, found.tail) for p in m.parameters()} == {torch.float32}
    small = load_backbone(BackboneConfig(image_size=96))  # positions are resampled
    assert small.trunk(torch.randn(2, 3, 96, 96)).shape == (2, 1 + 36, 192)
    learns = {name for name, p in found.tail.named_parameters() if p.requires_grad}
    assert learns == {name for name, _ in found.tail.named_parameters() if name.startswith("blocks.11.")}


@pytest.fixture
def tiny_state() -> dict[str, Tensor]:
    torch.manual_seed(1)
    return timm.create_model(TINY, img_size=32, num_classes=0).state_dict()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mine.safetensors"


@pytest.fixture(scope="module")
def dinov3(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A DINOv3 network of random weights as timm makes it, and the same as a file."""
    model = timm.create_model("vit_small_patch16_dinov3", img_size=32, num_classes=0).eval()
    path = tmp_path_factory.mktemp("dinov3") / "dinov3.safetensors"
    save_file(model.state_dict(), path)
    return model, path


CLS = {"pool": "token"}


@pytest.mark.parametrize(
    ("asked", "tail", "told"),
    [("auto", RotaryTail, CLS), ("token", RotaryTail, CLS), ("mean", WholeTail, {})],
)
def test_dinov3_gives_the_feature_of_its_makers(dinov3: Any, asked: Any, tail: type, told: dict) -> None:
    """timm takes the mean of the patches, upstream the CLS token."""
    model, path = dinov3
    arch = "vit_small_patch16_dinov3.lvd1689m"
    found = load_backbone(BackboneConfig(str(path), arch=arch, image_size=32, pool=asked))
    assert (type(found.tail), found.changes) == (tail, told)
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        tokens = model.forward_features(x)
        expected = model.forward_head(tokens) if asked == "mean" else tokens[:, 0]
        torch.testing.assert_close(found.tail(found.trunk(x)), expected, atol=1e-5, rtol=1e-5)


def test_dinov2_named_by_hand_sees_224_pixels_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "holotype")
    by_hand = BackboneConfig("vit_small_patch14_dinov2.lvd142m")
    assert load_backbone(by_hand, fetch=False).image_size == 224
    assert "--image-size 518" in caplog.text
    caplog.clear()
    assert load_backbone(replace(by_hand, image_size=42), fetch=False).image_size == 42
    assert caplog.text == ""


def test_an_arch_without_its_tag_is_asked_for_where_weights_differ(path: Path) -> None:
    """DINO and ImageNet-21k weights of one network expect different images, and no file tells them apart."""
    arch = "vit_small_patch16_224"
    save_file(timm.create_model(arch, img_size=32, num_classes=0).state_dict(), path)
    config = BackboneConfig(str(path), arch=arch, image_size=32)
    with pytest.raises(InputError, match=r"mean and std .* tag .*vit_small_patch16_224\.\w+.*, or mean"):
        load_backbone(config)
    assert load_backbone(replace(config, arch=f"{arch}.dino")).mean == IMAGENET_MEAN
    found = load_backbone(replace(config, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6)))
    assert (found.mean, found.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert found.changes == {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
    with pytest.raises(InputError, match="timm knows no network"):
        load_backbone(replace(config, arch=f"{arch}.nobody"))


def test_weights_that_do_not_fit(path: Path, tiny_state: dict[str, Tensor]) -> None:
    lacking = {k: v for k, v in tiny_state.items() if k not in ("norm.weight", "norm.bias")}
    for state, arch, said in (
        (lacking | {"x": torch.zeros(1)}, TINY, r"2 missing: norm.weight, norm.bias; 1 unexpected: x"),
        (tiny_state, "vit_small_patch16_224.dino", r"150 of another shape: cls_token, pos_embed"),
        ({**tiny_state, "pos_embed": torch.zeros(1, 8, 192)}, TINY, "do not fit"),
        ({**tiny_state, "reg_token": torch.zeros(1, 4, 192)}, TINY, "1 unexpected: reg_token"),
    ):
        save_file(state, path)
        with pytest.raises(InputError, match=said):
            load_backbone(BackboneConfig(str(path), arch=arch, image_size=32))


BAD = {
    "no such file": (BackboneConfig("nowhere/x.safetensors"), "no backbone file"),
    "no such pickle": (BackboneConfig("x.pth"), "existing .safetensors"),
    "unknown name": (BackboneConfig("vit_base_patch16_225"), "did you mean .*vit_base_patch16_224"),
    "unknown tag": (BackboneConfig("vit_base_patch16_224.dinoo"), r"vit_base_patch16_224\.dino"),
    "gibberish": (BackboneConfig("qqqqqqqqqqq"), "list_pretrained"),
    "no weights": (BackboneConfig("vit_small_patch16_36x1_224"), "no weights"),
    "ConvNet": (BackboneConfig("resnet18"), "not a plain vision transformer"),
    "hierarchy": (BackboneConfig("swin_tiny_patch4_window7_224"), "not a plain vision transformer"),
    "two heads": (BackboneConfig("deit_tiny_distilled_patch16_224"), "not a plain vision transformer"),
    "portrait": (BackboneConfig("vit_base_patch16_sapiens2"), "set image_size"),
    "no CLS token": (BackboneConfig("vit_base_patch16_siglip_224.webli", pool="token"), "use mean"),
    "no such pool": (BackboneConfig(pool="max"), "auto, token or mean"),  # type: ignore[arg-type]
    "mean alone": (BackboneConfig(mean=(0.5, 0.5, 0.5)), "mean is given without std"),
    "mean of bytes": (BackboneConfig(mean=(124, 116, 104), std=(1, 1, 1)), "divide by 255"),
    "no spread": (BackboneConfig(mean=(0.5, 0.5, 0.5), std=(0, 0.5, 0.5)), "above 0"),
    "no block": (BackboneConfig(train_blocks=0), "use 1 to 12"),
    "too many blocks": (BackboneConfig(train_blocks=13), "use 1 to 12"),
    "odd size": (BackboneConfig(image_size=100), "use 96"),
    "no size": (BackboneConfig(image_size=0), "use 16"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_in_a_sentence(case: str) -> None:
    config, message = BAD[case]
    if not timm.is_model("vit_base_patch16_sapiens2") and case == "portrait":
        pytest.skip("this timm does not have the network")
    with pytest.raises(InputError, match=message) as raised:
        load_backbone(config)
    assert "\n" not in str(raised.value)


def test_bad_files(path: Path, tiny_state: dict[str, Tensor]) -> None:
    whole = EMBEDDED.read_bytes()
    for content in (b"not a safetensors file at all", whole[: len(whole) // 2], whole[: len(whole) // 1000]):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"mine\.safetensors is not a whole .* delete it and fetch"):
            load_backbone(BackboneConfig(str(path)))
    odd = (("mean", "grey"), ("settings", "[1"), ("settings", "[1]"))
    broken = [({key: value}, "metadata") for key, value in odd]
    for tags, message in (({}, "set arch"), *broken):
        save_file(tiny_state, path, metadata={"timm": TINY, **tags} if tags else None)
        with pytest.raises(InputError, match=message):
            load_backbone(BackboneConfig(str(path)))


@pytest.mark.parametrize("pool", ["auto", "token", "mean"])
@pytest.mark.parametrize("name", ["vit_small_patch16_dinov3.lvd1689m", "embedded"])
def test_the_pool_is_foreseen_as_it_will_be_told(name: str, pool) -> None:
    config = BackboneConfig(name, image_size=32, pool=pool)
    found = load_backbone(config, fetch=False).changes.get("pool")
    assert expected_pool(config) == {"pool": found}


def test_a_file_that_may_say_anything_is_not_foreseen() -> None:
    mine = BackboneConfig("elsewhere/mine.safetensors")
    for unknown in (mine, replace(mine, pool="mean"), BackboneConfig("hf-hub:me/net", pool="mean")):
        assert expected_pool(unknown) == {}
    assert expected_pool(replace(mine, arch="vit_base_patch16_dinov3")) == {"pool": "token"}


GROUPS = dict(np.load(Path(__file__).parent.parent / "parity" / "param_groups.npz", allow_pickle=False))


def count(*modules: nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


def test_parameter_counts_of_the_reference() -> None:
    with torch.device("meta"):
        model = timm.create_model("vit_base_patch16_224", num_classes=0)
        projector, classifier, ova = Projector(768), CosineClassifier(768, 200), CompactOVA(768, 100)
    assert count(model) == int(GROUPS["counts.backbone"]) == 85_798_656
    assert count(model.blocks[11]) == int(GROUPS["counts.block"]) == 7_087_872
    trunk, tail = split_backbone(model, 1)
    assert count(trunk, tail) == 85_798_656
    assert count(projector) == int(GROUPS["counts.projector"]) == 6_295_808
    simgcd = count(trunk, tail, projector, classifier)
    assert simgcd == 92_248_064 == int(GROUPS["counts.total"]) - 200  # less the reference's frozen gains
    assert simgcd + count(ova) == 93_540_580
    learns = [p for m in (trunk, tail, projector, classifier) for p in m.parameters() if p.requires_grad]
    assert sum(p.numel() for p in learns) == int(GROUPS["counts.trainable"])


def test_mean_and_std_are_three_numbers_each_and_go_together() -> None:
    for value in ("0.1,0.2,0.3", "[0.1, 0.2, 0.3]", [0.1, 0.2, 0.3], np.array([0.1, 0.2, 0.3])):
        assert as_rgb("mean", value) == (0.1, 0.2, 0.3)
    for value in ("grey", "0.5", "1,2", 7, [0.5, 0.5], "0.1,0.2,nan", [0.5, 0.5, 1.5], "-0.1,0,0"):
        with pytest.raises(InputError, match=r"^mean is"):
            as_rgb("mean", value)
    assert requested_backbone(BackboneConfig()) == (None, None)
    assert requested_backbone(BackboneConfig(mean=(0, 0, 0), std=(1, 1, 1))) == ((0, 0, 0), (1, 1, 1))
    with pytest.raises(InputError, match="std is given without mean"):
        requested_backbone(BackboneConfig(std=(1, 1, 1)))


def test_a_file_is_known_by_its_absolute_path_and_all_else_by_its_name(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("own.safetensors", "embedded"):
        (tmp_path / name).touch()
    own = BackboneConfig(str(tmp_path / "own.safetensors"), "vit", 96)
    assert resolved_backbone(BackboneConfig("own.safetensors", "vit", 96)) == own
    for name in ("embedded", "auto", "vit_base_patch16_224.dino", "gone.safetensors"):
        assert resolved_backbone(BackboneConfig(name)) == BackboneConfig(name)
