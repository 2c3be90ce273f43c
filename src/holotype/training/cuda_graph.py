"""Capture a training step as a CUDA graph, and replay it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

Inputs = dict[str, Tensor]
WARM_UP = 3
"""Runs before the capture, in which libraries choose their kernels and allocate what they keep."""


@contextmanager
def restored_state(state: Iterable[Tensor]) -> Iterator[None]:
    """What the block does to the tensors of `state` is undone when it ends, however it ends."""
    kept = [(tensor, tensor.detach().clone()) for tensor in state]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, before in kept:
                tensor.copy_(before)


class CapturedStep:
    """A function of tensors that is replayed on the memory it was captured with.

    The function may change `state` in place; the runs that warm it up are undone. What it returns is
    overwritten by the next call.
    """

    def __init__(self, function: Callable[[Inputs], Tensor], inputs: Inputs, state: Iterable[Tensor]) -> None:
        self.inputs = {name: value.clone() for name, value in inputs.items()}
        self.sizes = {name: value.shape for name, value in inputs.items()}
        # a graph is captured on the current GPU, and of tensors on another one it would hold nothing
        with torch.cuda.device(next(iter(inputs.values())).device), restored_state(state):
            self.graph, self.stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
            self._warm_up(function)
            self._forget_workspaces()
            # other loops of this process may be working on other streams
            with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
                self.output = function(self.inputs)
            self._forget_workspaces()

    def _warm_up(self, function: Callable[[Inputs], Tensor]) -> None:
        """On a stream of its own, as captures require; nothing of it may stay alive on the default stream."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(WARM_UP):
                function(self.inputs)
        torch.cuda.current_stream().wait_stream(self.stream)

    def _forget_workspaces(self) -> None:
        """Give this graph scratch memory of its own for matrix products.

        torch keeps one workspace per stream and would bake it into every graph captured on that stream; replayed
        side by side, such graphs would overwrite each other's partial sums.
        """
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()

    def takes(self, inputs: Inputs) -> bool:
        """Whether the inputs are of the sizes that the function was captured with."""
        return {name: value.shape for name, value in inputs.items()} == self.sizes

    def __call__(self, inputs: Inputs) -> Tensor:
        for name, value in inputs.items():
            self.inputs[name].copy_(value, non_blocking=True)
        self.graph.replay()
        return self.output
