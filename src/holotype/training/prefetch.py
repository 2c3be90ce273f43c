"""Prefetch: make tensors in a thread and copy them to the device on a side stream, ahead of their use."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import torch
from torch import Tensor


class Prefetcher:
    """Makes host tensors in a thread and copies them to the device on a side stream, ahead of their use.

    All methods are for one thread, the one that trains. On a device without streams there is nothing to overlap
    with: `take` makes the tensor itself.
    """

    def __init__(
        self,
        make: Callable[[Any], Tensor],
        device: torch.device,
        depth: int = 2,
        *,
        thread: bool | None = None,
    ) -> None:
        """make: from a request to a tensor on the CPU. depth: how many results may wait, which bounds memory.

        thread: whether to make them in a thread; by default on CUDA only.
        """
        self.make, self.device, self.depth = make, device, depth
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        threaded = self._stream is not None if thread is None else thread
        # It starts its thread with the first request, and ends it when nobody has this object any more.
        self._pool = ThreadPoolExecutor(1, "holotype-prefetch") if threaded else None
        self._requests: deque[Any] = deque()
        self._coming: deque[Future[tuple[Tensor, torch.cuda.Event | None]]] = deque()

    def expect(self, request: Any) -> None:
        """Queue a request; never blocks."""
        self._requests.append(request)
        self._fill()

    def take(self) -> Tensor:
        """Return the next result on the device, in the order of `expect`; what `make` raised is raised here.

        On CUDA the current stream waits for the copy; the processor does not.
        """
        if not (self._coming or self._requests):
            raise RuntimeError("take() without a request: call expect() first")
        if self._pool is None:
            return self.make(self._requests.popleft()).to(self.device)
        coming = self._coming.popleft()
        self._fill()
        result, copied = coming.result()
        if copied is not None:
            here = torch.cuda.current_stream(self.device)
            here.wait_event(copied)
            # It was allocated on the side stream, which must not reuse it before this one is done with it.
            result.record_stream(here)
        return result

    def drop(self) -> None:
        """Forget what is queued; when this returns, `make` is not running."""
        self._requests.clear()
        for future in self._coming:
            future.cancel()
        wait(self._coming)
        self._coming.clear()

    def _fill(self) -> None:
        """Hand requests to the thread, as many as may wait."""
        while self._pool is not None and self._requests and len(self._coming) < self.depth:
            self._coming.append(self._pool.submit(self._prepare, self._requests.popleft()))

    def _prepare(self, request: Any) -> tuple[Tensor, torch.cuda.Event | None]:
        """In the thread: the result on the device, and the event after which it is there.

        torch keeps page-locked memory for reuse and hands it out again only after the copies from it are done, so a
        few buffers go round without an event of ours. The layout of the tensor (channels last) is kept.
        """
        if self._stream is None:
            return self.make(request).to(self.device), None
        # A thread begins on the first GPU, whichever one the run is on; the stream names the right one.
        with torch.cuda.stream(self._stream):
            made = self.make(request)
            pinned = made if made.is_pinned() else made.pin_memory()
            result = pinned.to(self._stream.device, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record(self._stream)
        return result, copied


def to_device(host: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device without waiting for it."""
    if device.type != "cuda":
        return host.to(device)
    return host.contiguous().pin_memory().to(device, non_blocking=True)
