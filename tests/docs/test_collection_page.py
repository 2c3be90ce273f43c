"""docs/correct.md on a collection that grows, followed on coloured squares, with a tiny network and k-means."""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
from pathlib import Path

import pytest
from PIL import Image

from holotype.discovery import pipeline
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, edits_csv

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "correct.md").read_text(encoding="utf-8")
PAGE = TEXT.partition("\n## When the collection grows\n")[2]


@pytest.fixture
def photos(tmp_path, monkeypatch, squares_folder, tiny_backbone_file) -> Path:
    """The working folder with photos/; every discovery in it is small."""
    monkeypatch.chdir(tmp_path)
    original = pipeline.discover_table

    def small(table, config, folder, **how):
        k = 4 if config.k == "auto" else 5
        network = str(tiny_backbone_file) if config.backbone == "auto" else config.backbone
        config = dataclasses.replace(config, k=k, method="kmeans", device="cpu", backbone=network)
        return original(table, config, folder, **{**how, "progress": False})

    monkeypatch.setattr(pipeline, "discover_table", small)
    return Path(shutil.copytree(squares_folder, tmp_path / "photos"))


def test_the_page_is_followed(photos: Path, holotype) -> None:
    again, look, other, elsewhere = (
        shlex.split(line)[1:]
        for block in re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
        for line in block.strip().splitlines()
    )
    run, heap = Path("runs/photos-discover"), photos / "unlabelled"
    assert holotype(*again).code == 0
    found = Discovery.load(run)
    images = [str(heap / f"{name}.png") for name in ("blue-00", "blue-01", "yellow-00")]
    edits = [Edit(found.run_id, "t", "confirm", image, "", "red") for image in images]
    Path("edits.csv").write_text(edits_csv(edits), encoding="utf-8")
    assert holotype(*again, "--edits", "edits.csv").code == 0
    (heap / "blue-00.png").rename(heap / "IMG_0001.png")
    (heap / "blue-01.png").unlink()
    Image.new("RGB", (40, 40), (220, 200, 40)).save(heap / "yellow-00.png")
    Image.new("RGB", (40, 40), (40, 60, 200)).save(heap / "IMG_0002.png")
    (heap / "red-15.png").rename(photos / "red" / "red-15.png")
    changed = "1 image new, 1 gone, 1 repaired, 2 renamed, 1 label new."
    seen = holotype(*look)
    assert f"Since round 2: {changed}" in seen.out
    assert Discovery.load(run).facts.round == 2
    outcome = holotype(*again)
    assert outcome.code == 0
    for line in (
        f"Since round 2: {changed}",
        "Repaired or replaced, and read again: unlabelled/yellow-00.png.",
        "What edits say of unlabelled/yellow-00.png still counts",
        "Edits that take part in round 3: 2 confirmed. They give 2 labels and keep 0 images out.",
        "1 edit of 1 image now gone will count again",
    ):
        assert line in outcome.err
    ids = dict(zip((found := Discovery.load(run)).images.path, found.images.category_id, strict=True))
    assert ids[str(heap / "IMG_0001.png")] == ids[str(heap / "yellow-00.png")] == "red"
    assert "Nothing has changed since round 3: its result stands." in holotype(*again).err
    outcome = holotype(*other)
    assert "Settings that differ from round 3: --k 5 (was 4), --seed 1 (was 0)." in outcome.err
    assert Discovery.load(run).facts.round == 4
    Path("archive").mkdir()
    photos.rename("archive/photos")
    outcome = holotype(*elsewhere, *other[2:])
    assert "Nothing else has changed since round 4: its result stands." in outcome.err
    Path("archive/photos").rename("birds")
    assert holotype("discover", "birds", *other[2:]).code == 0
    assert [path.name for path in Path("runs").iterdir()] == ["photos-discover"]
    refused = holotype("discover", "birds", "--out", run, "--backbone", "embedded")
    assert refused.code == 2
    assert "features of two networks cannot be compared" in refused.err
    assert Discovery.load(run).facts.round == 4
