"""Train on several workers of a Ray cluster, with Ray Train.

    pip install 'holotype[ray]'
    python examples/ray_train.py --workers 4 --gpu --address HOST:6379 --out /nfs/rpc-cub rpc cub root=/nfs/data

Every worker calls `holotype.train`, as every process that torchrun starts does: Ray has told them who they are, and the
weights are those of one process. Nothing is kept in Ray: the run folder, which all nodes must see, has the state. If a
worker or a node falls, start the same command again, and it goes on from there.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import yaml

import holotype


def train_worker(run: dict[str, Any]) -> None:
    """One worker's part. Ray starts workers in folders of its own, so every path in `run` must be absolute."""
    holotype.train(run["method"], run["dataset"], settings=run["settings"])


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train on the workers of a Ray cluster.")
    parser.add_argument("--workers", type=int, default=2, help="processes in all")
    parser.add_argument("--gpu", action="store_true", help="a GPU for each worker")
    parser.add_argument("--address", help="HOST:PORT of a cluster; without it Ray starts one here")
    parser.add_argument("--out", type=Path, required=True, help="run folder, on a disk that all nodes see")
    parser.add_argument("method")
    parser.add_argument("dataset")
    parser.add_argument("settings", nargs="*", help="as in train.epochs=20")
    given = parser.parse_args(words)

    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    pairs = (setting.split("=", 1) for setting in given.settings)
    settings = {name: yaml.safe_load(value) for name, value in pairs}
    settings["out"] = str(given.out.absolute())
    dataset = os.path.abspath(given.dataset) if os.path.exists(given.dataset) else given.dataset
    # by itself Ray would join whichever cluster runs on this machine
    ray.init(given.address or os.environ.get("RAY_ADDRESS") or "local")
    trainer = TorchTrainer(
        train_worker,
        train_loop_config={"method": given.method, "dataset": dataset, "settings": settings},
        scaling_config=ScalingConfig(num_workers=given.workers, use_gpu=given.gpu),
        torch_config=TorchConfig(backend="nccl" if given.gpu else "gloo"),
        run_config=RunConfig(name="ray", storage_path=str(given.out.absolute().parent / ".ray-train")),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
