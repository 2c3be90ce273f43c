"""The settings of training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from holotype.machine.rules import Count, Epochs, Momentum, Natural, Positive, Share, Weight


@dataclass
class TrainConfig:
    """How training runs; the defaults are those of SimGCD's released code, with a warm-up before them."""

    epochs: Epochs = 200
    """Epochs of a stage that does not set its own; an epoch is as many draws as there are images."""
    batch_size: Count = 128
    """Images per step over all processes together."""
    lr: Positive = 0.1
    """Learning rate of the first epoch; it falls to a thousandth along a cosine."""
    warmup: Share = field(default=0.05, metadata={"before": 0.0})
    """Share of the epochs in which the rate rises linearly to the cosine; 0 for none, as SimGCD's code has it. A stage
    that brings a pace of its own has none of it."""
    block_rate: Share = field(default=1.0, metadata={"before": 1.0})
    """Rate of a trained block, as a share of that of the block after it. Below 1, earlier blocks learn more slowly: at
    the full rate they lose most easily what they know."""
    momentum: Momentum = 0.9
    """Momentum of SGD."""
    weight_decay: Weight = 5e-5
    """Weight decay of matrices; biases and other one-dimensional parameters have none."""
    shards: Natural = field(default=0, metadata={"before": 0})
    """With several processes and a token cache: parts into which the images are dealt, such as 8, so that each process
    holds the tokens of its own parts alone; a multiple of the number of processes, and the same batches for any of
    them. 0: each process holds all tokens."""
    precision: Literal["auto", "fp32", "bf16", "fp64"] = "auto"
    """Arithmetic of the backbone: auto is bf16 on CUDA and fp32 elsewhere; heads and losses are fp32 (see matmul)."""
    matmul: Literal["highest", "high"] = "high"
    """Matrix products of heads and losses on CUDA: high allows TF32, whose 10 bits are those of the reference
    code's half precision, and takes a tenth off a step; highest is full fp32."""
    eval_every: Count = 10
    """Score every so many epochs, and after the last."""
    save_seconds: Weight = 60.0
    """Seconds between two saved states; one is also saved at the end and when stopped with Ctrl-C."""
    eager: bool = False
    """Run every operation by itself instead of compiling the trunk and replaying the step as one CUDA graph; for
    debugging a method on a GPU."""
