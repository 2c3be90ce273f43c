"""A store on disk: what is saved comes back, stays in its file, and has a digest of its own."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from holotype.data.augment import draw_crops
from holotype.data.image_store import ImageStore
from holotype.errors import InputError

from .noise import odd_files, write_noise


def test_save_and_load_keep_everything(tmp_path: Path) -> None:
    paths = [*odd_files(tmp_path), *write_noise(tmp_path, [(10, 90)], seed=1)]
    store = ImageStore.decode(paths, 28, progress=False)
    file = tmp_path / "images.safetensors"
    file.write_text("an older file")
    store.save(file)
    assert [x.name for x in tmp_path.iterdir() if x.name.startswith("images")] == [file.name]
    loaded = ImageStore.load(file)
    assert loaded.size == 28
    assert loaded.problem.tolist() == store.problem.tolist()
    assert loaded.note.tolist() == store.note.tolist()
    for name in ("pixels", "offset", "height", "width"):
        assert torch.equal(getattr(loaded, name), getattr(store, name))
    rows = torch.tensor([0, 6, 7, 0])
    crops = draw_crops(store.height[rows], store.width[rows], 28, torch.Generator().manual_seed(0))
    assert torch.equal(loaded.crop(rows, crops), store.crop(rows, crops))
    loaded.save(file)  # over the file it is mapped from
    assert torch.equal(ImageStore.load(file).pixels, store.pixels)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ImageStore.decode(write_noise(tmp_path, [(30, 30)]), 28, progress=False)
    file = tmp_path / "images.safetensors"
    store.save(file)
    before = file.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(InputError, match="disk full"):
        store.save(file)
    assert file.read_bytes() == before
    assert not list(tmp_path.glob(".*.part"))


def test_what_cannot_be_loaded_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no image store"):
        ImageStore.load(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("hello, this is not a tensor file")
    with pytest.raises(InputError, match="cannot be read"):
        ImageStore.load(tmp_path / "text.safetensors")
    save_file({"weight": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="not an image store"):
        ImageStore.load(tmp_path / "model.safetensors")


@pytest.mark.parametrize("note", ['{"7": "no such row"}', "[]", "{", None])
def test_metadata_that_anybody_may_have_written_are_no_traceback(tmp_path: Path, note: str | None) -> None:
    file = tmp_path / "images.safetensors"
    ImageStore.decode(write_noise(tmp_path, [(30, 30)]), 28, progress=False).save(file)
    with safe_open(file, framework="pt") as stored:
        metadata = {**stored.metadata(), "note": note}
        tensors = {name: stored.get_tensor(name).clone() for name in stored.keys()}  # noqa: SIM118
    save_file(tensors, file, {key: value for key, value in metadata.items() if value is not None})
    with pytest.raises(InputError, match=r"cannot be read .*decode the images again"):
        ImageStore.load(file)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's list of mapped files")
def test_loaded_pixels_stay_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mapped.safetensors"
    ImageStore.decode(write_noise(tmp_path, [(30, 30)]), 28, progress=False).save(file)
    loaded = ImageStore.load(file)
    at = loaded.pixels.data_ptr()
    mapped = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(file) in line]
    ranges = [[int(x, 16) for x in line[0].split("-")] for line in mapped]
    assert any(start <= at < end for start, end in ranges)


def test_the_digest_tells_stores_apart(tmp_path: Path) -> None:
    paths = write_noise(tmp_path, [(32, 64), (64, 32), (32, 32)])

    def digest(paths: list[str], size: int = 28) -> str:
        return ImageStore.decode(paths, size, progress=False).digest()

    assert digest(paths) == digest(paths)
    others = [
        digest(paths[::-1]),
        digest(paths[:2]),
        digest(paths, 14),
        digest([]),
        digest([*paths, "missing"]),
    ]
    assert len({digest(paths), *others}) == 6
    store = ImageStore.decode(paths, 28, progress=False)
    turned = dataclasses.replace(store, height=store.width, width=store.height)
    assert turned.digest() != store.digest(), "the same bytes in other sides"
    changed = dataclasses.replace(store, pixels=store.pixels.clone())
    changed.pixels[-1] ^= 1
    assert changed.digest() != store.digest()


def test_the_digest_covers_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holotype.data.image_store.HASHED_AT_ONCE", 1000)
    store = ImageStore.decode(write_noise(tmp_path, [(32, 40)]), 28, progress=False)
    digests = set()
    for at in range(0, store.nbytes, 500):
        changed = dataclasses.replace(store, pixels=store.pixels.clone())
        changed.pixels[at] ^= 1
        digests.add(changed.digest())
    assert len(digests | {store.digest()}) == len(range(0, store.nbytes, 500)) + 1


def test_levels(tmp_path: Path) -> None:
    store = ImageStore.decode(write_noise(tmp_path, [(32, 40)]), 28, progress=False)
    store.save(tmp_path / "images.safetensors")
    loaded = ImageStore.load(tmp_path / "images.safetensors")
    assert (store.level, loaded.level, store.to("meta").level) == ("host", "disk", "device")
    assert (loaded.to("cpu").level, loaded.to("meta").mapped) == ("disk", False)
