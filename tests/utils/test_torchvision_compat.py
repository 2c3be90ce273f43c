"""The torchvision cure: acts on its one symptom, passes every other failure on, and does nothing twice."""

import builtins
import subprocess
import sys

import pytest
import torch

from holotype.utils import torchvision_compat as _torchvision


def test_the_package_is_light_and_timm_imports_after_the_cure_in_a_fresh_process() -> None:
    code = (
        "import sys, holotype, holotype.models.backbone\n"
        "print(sorted({'timm', 'torchvision'} & set(sys.modules)))\n"
        "from holotype.utils import torchvision_compat as _torchvision\n"
        "first = _torchvision._library; _torchvision.patch_torchvision(); _torchvision.patch_torchvision()\n"
        "assert _torchvision._library is first\n"
        "import torch, torchvision, timm\n"
        "torch.ops.torchvision.nms\n"
        "print('fine')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["[]", "fine"], done.stderr


@pytest.fixture
def failing_import(monkeypatch: pytest.MonkeyPatch):
    """Make `import torchvision` raise the given errors, one per attempt, then work."""

    def install(*errors: Exception) -> list[int]:
        left, calls = list(errors), [0]
        real = builtins.__import__

        def fake(name, *rest, **named):
            if name == "torchvision":
                calls[0] += 1
                if left:
                    raise left.pop(0)
                return sys
            return real(name, *rest, **named)

        monkeypatch.setattr(builtins, "__import__", fake)
        return calls

    return install


class Recorder:
    """Stands in for torch.library.Library."""

    made: list[tuple[str, str]]
    schemas: list[str]

    def __init__(self, namespace: str, kind: str) -> None:
        type(self).made.append((namespace, kind))

    def define(self, schema: str) -> None:
        type(self).schemas.append(schema)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    Recorder.made, Recorder.schemas = [], []
    monkeypatch.setattr(torch.library, "Library", Recorder)
    monkeypatch.setattr(_torchvision, "_library", None)
    return Recorder


def test_the_symptom_is_cured_once(failing_import, recorder) -> None:
    failing_import(RuntimeError("operator torchvision::nms does not exist"))
    assert _torchvision.patch_torchvision()
    assert _torchvision.patch_torchvision()
    assert recorder.made == [("torchvision", "DEF")]
    assert [schema.partition("(")[0] for schema in recorder.schemas] == ["nms", "qnms"]


def test_a_sound_torchvision_is_left_alone(failing_import, recorder) -> None:
    calls = failing_import()
    assert not _torchvision.patch_torchvision()
    assert calls == [1]
    assert recorder.made == []


@pytest.mark.parametrize(
    "error",
    [ImportError("No module named 'torchvision'"), RuntimeError("libcudart.so is missing"), OSError("disk")],
)
def test_other_failures_pass_through(failing_import, recorder, error: Exception) -> None:
    failing_import(error)
    with pytest.raises(type(error), match=str(error)):
        _torchvision.patch_torchvision()
    assert recorder.made == []


def test_a_cure_that_does_not_help_is_not_repeated(failing_import, recorder) -> None:
    symptom = "operator torchvision::nms does not exist"
    failing_import(*(RuntimeError(symptom) for _ in range(4)))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="nms"):
            _torchvision.patch_torchvision()
    assert len(recorder.made) == 1
