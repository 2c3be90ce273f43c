"""The cure for torchvision: acts on its one symptom, passes every other failure on, and does nothing twice."""

import builtins
import subprocess
import sys

import pytest
import torch

from holotype.models import zoo
from holotype.models.zoo import patch_torchvision

SYMPTOM = RuntimeError("operator torchvision::nms does not exist")
CODE = """
import sys, holotype, holotype.models.backbone
assert not {'timm', 'torchvision'} & set(sys.modules)
from holotype.models import zoo as cure
cure.patch_torchvision(); first = cure._library; cure.patch_torchvision()
assert cure._library is first
import torch, torchvision, timm
torch.ops.torchvision.nms
"""
LATER = """
import sys, torch
from holotype.models.zoo import import_timm
from holotype.training.optim import build_optimiser
import_timm()
parameter = torch.nn.Parameter(torch.ones(2))
optimiser = build_optimiser({'a': parameter}, ('a',), 0.1, 0.9, 0.0)
parameter.sum().backward()
optimiser.step()
optimiser.zero_grad()
assert not [name for name in sys.modules if name.startswith('torch._dynamo')]
import torch._dynamo
assert torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1)) == 2
"""


def test_the_compiler_is_not_imported_before_it_is_needed() -> None:
    subprocess.run([sys.executable, "-c", LATER], check=True, timeout=120)


def test_the_package_is_light_and_timm_imports_after_the_cure_in_a_fresh_process() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True, timeout=120)


@pytest.mark.parametrize(
    ("errors", "raised", "defined"),
    [
        ([], None, []),
        ([SYMPTOM], None, ["torchvision DEF", "nms", "qnms"]),
        ([SYMPTOM] * 4, RuntimeError, ["torchvision DEF", "nms", "qnms"]),
        ([ImportError("No module named 'torchvision'")] * 2, ImportError, []),
        ([RuntimeError("no libcudart")] * 2, RuntimeError, []),
    ],
)
def test_the_symptom_is_cured_once_and_all_else_left_alone(monkeypatch, errors, raised, defined) -> None:
    """errors: those that `import torchvision` raises, one per attempt, before it works."""
    left, real, found = list(errors), builtins.__import__, []

    def fake(name, *rest, **named):
        if name != "torchvision":
            return real(name, *rest, **named)
        if left:
            raise left.pop(0)
        return sys

    class Library:
        def __init__(self, namespace: str, kind: str) -> None:
            found.append(f"{namespace} {kind}")

        def define(self, schema: str) -> None:
            found.append(schema.partition("(")[0])

    monkeypatch.setattr(torch.library, "Library", Library)
    monkeypatch.setattr(zoo, "_library", None)
    monkeypatch.setattr(builtins, "__import__", fake)
    for _ in range(2):
        if raised:
            with pytest.raises(raised):
                patch_torchvision()
        else:
            assert patch_torchvision() is bool(defined)
    assert found == defined
