"""`hf-hub:org/repo` with a server on this machine in the hub's place; nothing reaches out."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from huggingface_hub import constants
from huggingface_hub.utils import _http
from safetensors.torch import save
from torch import Tensor

from holotype.config.schema import BackboneConfig
from holotype.errors import InputError
from holotype.models.backbone import Backbone, download_backbone, load_backbone
from holotype.models.hub import hub_request
from holotype.models.weights_io import read_metadata

from .hub_server import Hub, serving

TINY = "vit_tiny_patch16_224"
SMALL = {"embed_dim": 48, "depth": 2, "num_heads": 3}
GREY = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        monkeypatch.setattr(constants, "ENDPOINT", served.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", served.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield served


def made(arch: str, size: int = 32, **settings: Any) -> Any:
    torch.manual_seed(2)
    return timm.create_model(arch, img_size=size, num_classes=0, **settings).eval()


def same_features(found: Backbone, model: Any, size: int = 32, tolerance: float = 1e-5) -> None:
    x = torch.randn(2, 3, size, size)
    with torch.no_grad():
        theirs = model.tail(model.trunk(x)) if isinstance(model, Backbone) else model(x)
        torch.testing.assert_close(found.tail(found.trunk(x)), theirs, atol=tolerance, rtol=tolerance)


def put(hub: Hub, name: str, state: dict[str, Tensor], **files: Any) -> None:
    """A repository: its weights as `weights`, and JSON or text files under names with a dot for two underscores."""
    kept = {key.replace("__", "."): v for key, v in files.items()}
    content = {k: v.encode() if isinstance(v, str) else json.dumps(v).encode() for k, v in kept.items()}
    where = "open_clip_model.safetensors" if "open_clip_config.json" in kept else "model.safetensors"
    hub.files[name] = content | {where: save({key: value.contiguous() for key, value in state.items()})}


def timm_config(arch: str = TINY, cfg: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """config.json of a small network of timm, for 32 pixels."""
    cfg = {"input_size": [3, 32, 32], **GREY} if cfg is None else cfg
    return {"architecture": arch, "model_args": SMALL, "pretrained_cfg": cfg, **more}


def test_open_clip_with_a_network_of_timm(hub: Hub) -> None:
    """As BiomedCLIP: a tower of timm under visual.trunk, and a text tower beside it."""
    model = made(TINY)
    state = {f"visual.trunk.{key}": value for key, value in model.state_dict().items()}
    state |= {"text.proj.weight": torch.zeros(2, 2), "logit_scale": torch.ones(1)}
    vision = {"timm_model_name": TINY, "timm_pool": "", "image_size": 32}
    config = {"model_cfg": {"embed_dim": 5, "vision_cfg": vision}, "preprocess_cfg": GREY}
    card = "---\nlicense: mit\ntags: [x]\n---\nA card."
    put(hub, "lab/clip", state, open_clip_config__json=config, README__md=card)
    found = load_backbone(BackboneConfig("hf-hub:lab/clip"))
    assert (found.image_size, found.mean, found.licence) == (32, (0.1, 0.2, 0.3), "mit")
    same_features(found, model)


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\nlicense:\n- mit\nlanguage:\n- en\n---\n# Card", "mit"),
        ("---\nlicense: other\nlicense_name: dinov3-license\n---\n", "dinov3-license"),
        ("---\nlicense: other\n---\n", "other"),
        ("---\n: : [\n---\n", "unknown"),
        ("# Card", "unknown"),
    ],
)
def test_the_card_names_the_licence(hub: Hub, card: str, licence: str) -> None:
    put(hub, "me/net", {}, config__json=timm_config(), README__md=card)
    assert load_backbone(BackboneConfig("hf-hub:me/net"), fetch=False).licence == licence


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "no repository": ("hf-hub:nowhere", {}, "hf-hub:organisation/repository"),
    "unknown": ("hf-hub:no/body", {}, "no hf-hub:no/body"),
    "gated": ("hf-hub:lab/gated", {}, "accept them on https://huggingface.co/lab/gated"),
    "no configuration": ("hf-hub:me/x", {"notes__txt": "x"}, "nobody knows which"),
    "no JSON": ("hf-hub:me/x", {"config__json": "{"}, "no JSON"),
    "no weights": ("hf-hub:me/x", {"config__json": timm_config(), "weights": None}, "no weights under any"),
    "half a configuration": ("hf-hub:me/x", {"open_clip_config__json": {"model_cfg": {}}}, "cannot be read"),
    "odd settings": ("hf-hub:me/x", {"config__json": timm_config(model_args={"wheels": 4})}, "cannot build"),
    "transformers' MAE": ("hf-hub:me/x", {"config__json": {"model_type": "vit_mae"}}, "not read here"),
    "no size": ("hf-hub:me/x", {"config__json": {"model_type": "dinov2", "hidden_size": 5}}, "cannot build"),
    "ConvNet": ("hf-hub:me/x", {"config__json": {"architecture": "resnet18"}}, "not a plain vision trans"),
    "no mean": ("hf-hub:me/x", {"config__json": {"architecture": "vit_small_patch16_224"}}, "which mean and"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case: str, hub: Hub) -> None:
    name, files, says = BAD[case]
    hub.gated.add("lab/gated")
    without = files.pop("weights", "") is None
    put(hub, "me/x", {"a": torch.zeros(1)}, **files)
    if without:
        del hub.files["me/x"]["model.safetensors"]
    with pytest.raises(InputError, match=says) as told:
        load_backbone(BackboneConfig(name))
    assert "\n" not in str(told.value)


OURS = "The Hugging Face hub does not answer; it is asked again for up to a minute."


def speak(message: str, level: int = logging.WARNING) -> None:
    """As the client does."""
    logging.getLogger("huggingface_hub.utils._http").log(level, message)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the client's own handler lets through, which is what people would see."""
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "handlers", [Handler()])
    return lines


def test_the_tries_become_one_line_and_the_client_still_speaks_so(shown, caplog, monkeypatch) -> None:
    with caplog.at_level(logging.INFO, logger="holotype"):
        with hub_request():
            for number in range(1, 6):
                speak("'Name or service not known' thrown while requesting HEAD https://huggingface.co/x")
                speak(f"Retrying in 1s [Retry {number}/5].")
            speak("a token is wrong")
            speak("broken", logging.ERROR)
        speak("Retrying in 1s [Retry 1/5].")
    assert shown == ["a token is wrong", "broken", "Retrying in 1s [Retry 1/5]."]  # after it all is as before
    assert [one.getMessage() for one in caplog.records if one.name.startswith("holotype")] == [OURS]
    # the real one, whose tries of a port where nobody listens fail at once
    shown.clear(), caplog.clear()
    monkeypatch.setenv("NO_PROXY", "*")
    tries = {"max_retries": 2, "base_wait_time": 0, "max_wait_time": 0}
    caplog.set_level(logging.INFO, logger="holotype")
    with hub_request(), pytest.raises(Exception, match="refused"):
        _http.http_backoff("HEAD", "http://127.0.0.1:9/", **tries)
    assert shown == []
    assert [one.getMessage() for one in caplog.records if one.name.startswith("holotype")] == [OURS]


def offline(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the hub nor its cache is there any more."""
    hub.files.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "empty"))


def put_net(hub: Hub, **more: Any) -> None:
    cfg = {"tag": "mine", "input_size": [3, 32, 32], "license": "cc-by-nc-4.0", **GREY}
    model = made("vit_small_patch16_dinov3", **SMALL)
    put(hub, "me/net", model.state_dict(), config__json=timm_config("vit_small_patch16_dinov3", cfg, **more))


@pytest.mark.parametrize("classes", [0, 7])
def test_a_repository_is_the_same_from_the_file(hub: Hub, tmp_path: Path, monkeypatch, classes: int) -> None:
    """Settings of its own, normalisation, licence, and the pool: a fine-tuned network keeps its own."""
    put_net(hub, num_classes=classes, global_pool="avg")
    before = load_backbone(BackboneConfig("hf-hub:me/net"))
    done = download_backbone("hf-hub:me/net", tmp_path / "laptop")
    assert done.file == tmp_path / "laptop" / "me-net.safetensors"
    assert done.nbytes == done.file.stat().st_size
    offline(hub, tmp_path, monkeypatch)
    after = load_backbone(BackboneConfig(str(done.file)))
    same_features(after, before, tolerance=0)
    assert (after.mean, after.std, after.image_size) == (before.mean, before.std, 32)
    assert (after.licence, after.changes) == ("cc-by-nc-4.0", before.changes)
    assert after.changes == ({} if classes else {"pool": "token"})
    assert read_metadata(done.file)["source"] == "hf-hub:me/net"


def test_weights_of_timm_keep_their_pixels_and_their_tag(hub: Hub, tmp_path: Path, monkeypatch) -> None:
    """timm's test_vit, whose weights timm itself asks the hub for."""
    name = "test_vit.r160_in1k"
    head = {"head.weight": torch.zeros(1000, 64), "head.bias": torch.zeros(1000)}
    hub.files[f"timm/{name}"] = {"model.safetensors": save({**made("test_vit", 160).state_dict(), **head})}
    before = load_backbone(BackboneConfig(name))
    done = download_backbone(name, tmp_path)
    assert (done.file.name, done.tags["timm"]) == (f"{name}.safetensors", name)
    assert (done.tags["image_size"], done.tags["pool"]) == ("160", "auto")
    offline(hub, tmp_path, monkeypatch)
    for size in (96, None):
        after = load_backbone(BackboneConfig(str(done.file), image_size=size))
        assert (after.mean, after.std, after.licence) == (before.mean, before.std, before.licence)
        assert (after.name, after.image_size) == (name, size or 160)
    same_features(after, before, 160, 0)


BAD_NAMES = {
    "vit_small_patch16_224.dinno": "did you mean .*vit_small_patch16_224.dino",
    "resnet18.a1_in1k": "not a plain vision transformer",
    "embedded": "nothing to fetch",
    "mine.safetensors": "nothing to fetch",
    "imageomics/bioclip": "write hf-hub:",
    "hf-hub:no/body": "no hf-hub:no/body",
}


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_names_are_one_sentence(name: str, hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=BAD_NAMES[name]) as told:
        download_backbone(name, tmp_path / "to")
    assert "\n" not in str(told.value)
    assert not (tmp_path / "to").exists()


def test_nothing_is_overwritten_and_nothing_fetched_first(hub: Hub, tmp_path: Path) -> None:
    put_net(hub)
    there = tmp_path / "me-net.safetensors"
    there.write_text("mine")
    with pytest.raises(InputError, match="there already"):
        download_backbone("hf-hub:me/net", tmp_path)
    with pytest.raises(InputError, match="is a file; name a folder"):
        download_backbone("hf-hub:me/net", there)
    assert there.read_text() == "mine"
    assert hub.asked == []


@pytest.mark.parametrize("name", ["hf-hub:me/net", "test_vit.r160_in1k"])
def test_without_a_network_it_is_one_sentence(hub: Hub, name: str, tmp_path: Path, monkeypatch) -> None:
    offline(hub, tmp_path, monkeypatch)
    with pytest.raises(InputError, match="could not be fetched from the Hugging Face hub") as told:
        download_backbone(name, tmp_path / "to")
    assert "\n" not in str(told.value)
