"""model.json comes back as it was, and one of another version, or damaged, is one sentence that names it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holotype.config.schema import BackboneConfig
from holotype.errors import InputError
from holotype.methods import Task
from holotype.runs.model_io import MODEL_CONFIG_FILE, MODEL_WEIGHTS_FILE, ModelConfig
from holotype.utils.serialization import from_dict, to_dict

MADE = ModelConfig(
    "r-1", ("a", "b"), ("a", "b", "new-01"), "rpc", {"tau": 0.1}, Task(2, 3, 8, 10, 4),
    BackboneConfig("embedded", image_size=32), "d", False, "w",
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / MODEL_CONFIG_FILE).write_text(json.dumps(to_dict(MADE)))
    (tmp_path / MODEL_WEIGHTS_FILE).write_bytes(b"")
    return tmp_path


def test_it_comes_back_as_it_was(run: Path) -> None:
    assert ModelConfig.read(run) == MADE
    assert from_dict(ModelConfig, to_dict(MADE)) == MADE


def test_the_licence_of_the_backbone_goes_with_the_model(run: Path) -> None:
    (run / MODEL_CONFIG_FILE).write_text(json.dumps(to_dict(MADE) | {"licence": "dinov3-license"}))
    assert ModelConfig.read(run).licence == "dinov3-license"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": 0}, r"model\.json was written by another version \(format 0, not 1\)"),
        ({"task": {}}, r"model\.json cannot be read \(task\.n_known is missing\)"),
        ({"run_id": None}, "run_id is None, not text"),
        ({"ids": "ab"}, "ids is 'ab', not a list"),
        ({"extra": 1}, "extra is not known"),
    ],
)
def test_what_is_not_a_sheet_is_one_sentence(run: Path, change: dict, says: str) -> None:
    (run / MODEL_CONFIG_FILE).write_text(json.dumps(to_dict(MADE) | change))
    with pytest.raises(InputError, match=says) as told:
        ModelConfig.read(run)
    assert "in another folder" in str(told.value)
    assert "\n" not in str(told.value)


def test_a_missing_key_is_told(run: Path) -> None:
    content = to_dict(MADE)
    del content["digest"]
    (run / MODEL_CONFIG_FILE).write_text(json.dumps(content))
    with pytest.raises(InputError, match="digest is missing"):
        ModelConfig.read(run)


@pytest.mark.parametrize("content", ["{", "[]", "3", "{}"])
def test_damage_is_one_sentence(run: Path, content: str) -> None:
    (run / MODEL_CONFIG_FILE).write_text(content)
    with pytest.raises(InputError, match=r"model\.json cannot be read"):
        ModelConfig.read(run)


def test_a_folder_without_a_model_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no folder"):
        ModelConfig.read(tmp_path / "absent")
    with pytest.raises(InputError, match="holds no trained model"):
        ModelConfig.read(tmp_path)
