"""Trained weights as they were before the house was rebuilt: a refactoring must not move a single bit.

Digests are compared where arithmetic is the same (torch's version, the processor's instructions), which the golden
file names; elsewhere the sums of the weights are compared to five digits. After a change of draws or of maths, raise
the method's revision and write the file anew: `python -m pytest tests/training/test_golden_weights.py --write-golden`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch

from .conftest import weights

FILE = Path(__file__).with_name("golden_weights.json")
METHODS = ("simgcd", "debgcd", "rpc")


def arithmetic() -> str:
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"


def trained(world, folder: Path, method: str, mode: str) -> dict[str, torch.Tensor]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums over several threads come in another order
    try:
        cache = world.cache(folder) if mode == "cached" else None
        loop = world.loop(method, cache=cache, epochs=3, seed=5)
        loop.fit()
        return weights(loop)
    finally:
        torch.set_num_threads(threads)


def summary(tensors: dict[str, torch.Tensor]) -> dict[str, object]:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].contiguous().numpy().tobytes())
    sums = {name: float(tensor.double().abs().sum()) for name, tensor in sorted(tensors.items())}
    return {"digest": digest.hexdigest(), "sums": sums}


@pytest.mark.parametrize("mode", ["exact", "cached"])
@pytest.mark.parametrize("method", METHODS)
def test_training_ends_with_the_weights_that_it_always_ended_with(world, tmp_path, method, mode, request):
    found = summary(trained(world, tmp_path, method, mode))
    golden = json.loads(FILE.read_text()) if FILE.exists() else {}
    if request.config.getoption("--write-golden"):
        golden["arithmetic"] = arithmetic()
        golden[f"{method} {mode}"] = found
        FILE.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
    expected = golden[f"{method} {mode}"]
    assert found["sums"] == pytest.approx(expected["sums"], rel=1e-5, abs=1e-7)
    if golden["arithmetic"] == arithmetic():
        assert found["digest"] == expected["digest"]
