"""Names for new categories out of a list of words: the ranking, the file, and a small made network of open_clip."""

import json
from pathlib import Path

import numpy as np
import pytest

from export.made_results import made_run
from holotype.discovery.lookup import look_up
from holotype.errors import InputError
from holotype.models.zoo import patch_torchvision
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, edits_csv
from holotype.results.names import MARK, NameProposals, rank_words, read_words, save_names, with_names


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_the_score_is_the_mean_share() -> None:
    random = np.random.default_rng(0)
    images, text, words = unit(random.normal(size=(4, 8))), unit(random.normal(size=(5, 8))), list("abcde")
    slow = np.zeros(5)
    for x in images:
        rise = [np.exp(10 * float(x @ w)) for w in text]
        slow += np.array(rise) / sum(rise) / len(images)
    found = rank_words({"new-01": images}, words, text, 10.0)["new-01"]
    assert [word for word, _ in found] == [words[at] for at in np.argsort(-slow)[:3]]
    assert [score for _, score in found] == pytest.approx(sorted(slow)[::-1][:3], abs=1e-3)


def test_words_are_read_as_people_have_them(tmp_path) -> None:
    (tmp_path / "words.txt").write_bytes("Eule\r\nBläuling\r\n\r\nEule\r\n".encode("cp1252"))
    assert read_words(tmp_path / "words.txt") == ["Eule", "Bläuling"]
    (tmp_path / "words.txt").write_text("one\n")
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)))
    (tmp_path / "odd.txt").write_bytes(b"owl\njay\x81\n")
    (tmp_path / "table.parquet").write_bytes(b"PAR1\x00\x81")
    for name in ("words.txt", "none.txt", "binary.txt", "odd.txt", "table.parquet"):
        with pytest.raises(InputError):
            read_words(tmp_path / name)


def test_imagenet_names_its_classes(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = read_words(Path("imagenet"))
    assert {"goldfish", "toilet tissue"} <= {*words}
    assert 990 < len(words) <= 1000
    Path("imagenet").write_text("owl\njay\n", encoding="utf-8")
    assert read_words(Path("imagenet")) == ["owl", "jay"]


def test_proposals_are_shown_until_a_category_has_a_name(tmp_path, holotype) -> None:
    run = made_run(tmp_path)
    found = Discovery.load(run)
    names = {"new-01": [("owl", 0.7), ("jay", 0.2)], "new-02": [("tit", 0.1), ("jay", 0.05)]}
    names["new-03"] = [("x", 0.9)]
    save_names(run, NameProposals(found.run_id, "made", {id: list(best) for id, best in names.items()}))
    (tmp_path / "edits.csv").write_text(edits_csv([Edit(found.run_id, "1", "rename", "", "new-03", "wren")]))
    for words in (("--edits", tmp_path / "edits.csv"), ()):
        assert holotype("report", run, *words).code == 0
        now = Discovery.load(run)
        assert now.category("new-01").suggested == "owl"
        assert now.category("new-01").words.endswith(f"{MARK}owl 0.70, jay 0.20")
        assert now.category("new-01").words.count(MARK) == 1
        assert now.category("new-02").suggested != "tit"  # too unsure to be a name
        assert (now.category("new-03").name, MARK in now.category("new-03").words) == ("wren", False)
    later = Discovery(f"{found.run_id}-2", found.known, found.images, found.categories)
    assert with_names(run, later) is later


@pytest.fixture
def tower(tmp_path) -> Path:
    """A CLIP of some thousand weights in a folder, drawn at random."""
    patch_torchvision()
    open_clip = pytest.importorskip("open_clip", reason="pip install 'holotype[names]'")
    import torch
    from safetensors.torch import save_file

    shape = {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "patch_size": 16, "head_width": 16},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
    }
    folder = tmp_path / "tower"
    folder.mkdir()
    process = {"mean": [0.5] * 3, "std": [0.5] * 3}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": shape, "preprocess_cfg": process}))
    torch.manual_seed(0)
    made = open_clip.CLIP(**shape)
    state = {name: value.contiguous() for name, value in made.state_dict().items()}
    save_file(state, folder / "open_clip_model.safetensors")
    return folder


@pytest.mark.packages
def test_a_network_of_open_clip_names_categories(tmp_path, tower, holotype) -> None:
    from holotype.data.decode import read_image
    from holotype.models.text_tower import TextTower

    run = made_run(tmp_path)
    (tmp_path / "words.txt").write_text("owl\njay\nwren\ngreat tit\n")
    done = holotype("report", run, "--names", tmp_path / "words.txt", "--tower", tower, "--device", "cpu")
    assert done.code == 0, done.err
    names = json.loads((run / "names.json").read_text())["names"]
    found = Discovery.load(run)
    new = [category for category in found.categories if category.kind == "novel"]
    assert set(names) == {category.id for category in new}
    network, words = TextTower(str(tower)), ["owl", "jay", "wren", "great tit"]
    text = network.encode_words(words)
    np.testing.assert_allclose(np.linalg.norm(text, axis=1), 1, rtol=1e-5)
    first = network.encode_images([read_image(path)[0] for path in new[0].exemplars])
    share = np.exp(network.scale * (first @ text.T))
    share = (share / share.sum(axis=1, keepdims=True)).mean(axis=0)
    assert names[new[0].id][0][0] == words[int(share.argmax())]
    assert all(MARK in category.words for category in new)


@pytest.mark.packages
@pytest.mark.usefixtures("tower")
def test_a_network_that_is_not_there_is_one_sentence(tmp_path, holotype) -> None:
    run = made_run(tmp_path)
    (tmp_path / "words.txt").write_text("owl\njay\n")
    (tmp_path / "empty").mkdir()
    refused = holotype("report", run, "--names", tmp_path / "words.txt", "--tower", tmp_path / "empty")
    assert (refused.code, len(refused.err.strip().splitlines())) == (2, 1)
    assert "open_clip_config.json" in refused.err


def test_words_need_a_network(tmp_path) -> None:
    with pytest.raises(InputError, match="--names"):
        look_up(made_run(tmp_path), "words", b"owl")


@pytest.mark.packages
def test_images_are_found_by_words(tmp_path, tower, monkeypatch) -> None:
    from holotype.data.decode import read_image
    from holotype.models.text_tower import TextTower

    run = made_run(tmp_path)
    found = Discovery.load(run)
    found.images["digest"] = [f"{row:032x}" for row in range(len(found.images))]
    found.save(run)
    save_names(run, NameProposals(found.run_id, str(tower), {}))
    told = look_up(run, "words", b"a great tit")
    network = TextTower(str(tower))
    word = network.encode_words(["a great tit"])[0]
    readable = found.images[found.images.problem == ""]
    cosine = network.encode_images([read_image(path)[0] for path in readable.path]) @ word
    assert [*told.values()] == pytest.approx(sorted(cosine, reverse=True)[: len(told)], abs=2e-3)
    monkeypatch.setattr(TextTower, "encode_images", None)  # the second time they are kept
    assert look_up(run, "words", b"a great tit") == told
