"""Two processes give the weights of one."""

from __future__ import annotations

import pytest
import torch
import torch.multiprocessing as mp
from safetensors.torch import load_file

from holotype.machine.processes import gather_rows, local_rows, sum_gradients, world_size

from .two_processes import CASES, train_all, worker


def test_one_process_gathers_nothing():
    x = torch.randn(4, 3)
    assert world_size() == 1
    assert gather_rows(x) is x
    assert torch.equal(local_rows(x), x)
    sum_gradients([torch.nn.Parameter(x)], [])


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
def test_two_processes_give_the_weights_of_one(world, tmp_path):
    """float64, to 1e-9; with 16 rows of which about half are labelled, the processes' counts are uneven."""
    for rank in range(2):
        (tmp_path / "images" / str(rank)).mkdir(parents=True)
    (tmp_path / "one").mkdir()
    train_all(world, tmp_path / "one", 0)
    mp.spawn(worker, args=(2, str(tmp_path / "images"), str(tmp_path)), nprocs=2)
    for name in CASES:
        one = load_file(tmp_path / "one" / f"{name}-0.safetensors")
        for rank in range(2):
            two = load_file(tmp_path / f"{name}-{rank}.safetensors")
            assert one.keys() == two.keys()
            for key in one:
                torch.testing.assert_close(two[key], one[key], rtol=1e-9, atol=1e-9, msg=f"{name} {key}")
    start = world.loop("simgcd").model_tensors()
    trained = load_file(tmp_path / "one" / "simgcd-0.safetensors")
    assert not torch.allclose(start["method.classifier.v"].double(), trained["method.classifier.v"])
