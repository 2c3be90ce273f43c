"""Trained weights as they were before the house was rebuilt: a refactoring must not move a single bit.

Compared where arithmetic is the same (torch's version, the processor), which the golden file names; elsewhere training
ends with other bits. After a change of draws or of maths, raise the method's revision and write the file anew:
`python -m pytest tests/training/test_golden_weights.py --write-golden`.
"""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path

import pytest
import torch

from .conftest import weights

PUBLISHED_HEADS = True

FILE = Path(__file__).with_name("golden_weights.json")
AS_THEN: dict[str, dict[str, object]] = {
    "simgcd": {"memax_weight": 1.0},
    "debgcd": {"memax_weight": 1.0},
    "rpc": {"memax_weight": 1.0, "base": "simgcd"},
}
"""The defaults of the time."""
METHODS = tuple(AS_THEN)


def arithmetic() -> str:
    """Torch and the processor: other ones round otherwise."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    wanted = ("cpu family", "model\t")
    model = " ".join([line.partition(":")[2].strip() for line in lines if line.startswith(wanted)][:2])
    return (
        f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {platform.machine()} {model}"
    )


def trained(world, folder: Path, method: str, mode: str) -> dict[str, torch.Tensor]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums over several threads come in another order
    try:
        cache = world.cache(folder) if mode == "cached" else None
        loop = world.loop(method, cache=cache, epochs=3, seed=5, warmup=0.0, settings=AS_THEN[method])
        loop.fit()
        return weights(loop)
    finally:
        torch.set_num_threads(threads)


def digest(tensors: dict[str, torch.Tensor]) -> str:
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(name.encode() + tensors[name].contiguous().numpy().tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("mode", ["exact", "cached"])
@pytest.mark.parametrize("method", METHODS)
def test_training_ends_with_the_weights_that_it_always_ended_with(world, tmp_path, method, mode, request):
    golden = json.loads(FILE.read_text()) if FILE.exists() else {}
    writes = request.config.getoption("--write-golden")
    if not writes and golden["arithmetic"] != arithmetic():
        pytest.skip(f"the golden weights are of {golden['arithmetic']}, here is {arithmetic()}")
    found = digest(trained(world, tmp_path, method, mode))
    if writes:
        golden |= {"arithmetic": arithmetic(), f"{method} {mode}": found}
        FILE.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
    assert found == golden[f"{method} {mode}"]
