"""The cure for torchvision: acts on its one symptom, passes every other failure on, and does nothing twice."""

import builtins
import subprocess
import sys

import pytest
import torch

from holotype.utils import torchvision_compat
from holotype.utils.torchvision_compat import patch_torchvision

SYMPTOM = "operator torchvision::nms does not exist"


def test_the_package_is_light_and_timm_imports_after_the_cure_in_a_fresh_process() -> None:
    code = (
        "import sys, holotype, holotype.models.backbone\n"
        "print(sorted({'timm', 'torchvision'} & set(sys.modules)))\n"
        "from holotype.utils import torchvision_compat as cure\n"
        "first = cure._library; cure.patch_torchvision(); cure.patch_torchvision()\n"
        "assert cure._library is first\n"
        "import torch, torchvision, timm\n"
        "torch.ops.torchvision.nms\n"
        "print('fine')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["[]", "fine"], done.stderr


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is defined in the library that stands in for torch's."""
    defined: list[str] = []

    class Library:
        def __init__(self, namespace: str, kind: str) -> None:
            defined.append(f"{namespace} {kind}")

        def define(self, schema: str) -> None:
            defined.append(schema.partition("(")[0])

    monkeypatch.setattr(torch.library, "Library", Library)
    monkeypatch.setattr(torchvision_compat, "_library", None)
    return defined


@pytest.fixture
def failing_import(monkeypatch: pytest.MonkeyPatch):
    """Make `import torchvision` raise the given errors, one per attempt, then work."""

    def install(*errors: Exception) -> None:
        left, real = list(errors), builtins.__import__

        def fake(name, *rest, **named):
            if name != "torchvision":
                return real(name, *rest, **named)
            if left:
                raise left.pop(0)
            return sys

        monkeypatch.setattr(builtins, "__import__", fake)

    return install


def test_the_symptom_is_cured_once_and_a_sound_torchvision_left_alone(failing_import, library) -> None:
    failing_import()
    assert not patch_torchvision()
    assert library == []
    failing_import(RuntimeError(SYMPTOM))
    assert patch_torchvision()
    assert patch_torchvision()
    assert library == ["torchvision DEF", "nms", "qnms"]


@pytest.mark.parametrize(
    "error", [ImportError("No module named 'torchvision'"), RuntimeError("no libcudart")]
)
def test_other_failures_pass_through(failing_import, library, error: Exception) -> None:
    failing_import(error)
    with pytest.raises(type(error), match=str(error)):
        patch_torchvision()
    assert library == []


def test_a_cure_that_does_not_help_is_not_repeated(failing_import, library) -> None:
    failing_import(*(RuntimeError(SYMPTOM) for _ in range(4)))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="nms"):
            patch_torchvision()
    assert library.count("torchvision DEF") == 1
