"""Settings of RPC: one field per choice that the paper leaves open, and the preset of its literal reading."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from holotype.config.types import LargeInt, Natural, Positive, UnitInterval, Weight
from holotype.methods.simgcd import SimGCDConfig


@dataclass
class OVAConfig:
    """The one-vs-all heads behind w_old."""

    weight: Weight = 0.005
    """Weight beta of the gradient that the heads send into the backbone; they themselves learn at full weight."""


@dataclass
class DebiasConfig:
    """The debiased classifier of the DebGCD base."""

    threshold: UnitInterval | None = None
    """Smallest classifier probability for which a pseudo-label counts; by default that of a lead of 0.6 in cosine over
    all other categories, which depends on their number: 0.98 for 10, 0.80 for 100, 0.67 for 200."""
    adl: Weight | None = None
    """Weight of the debiased loss; by default a fiftieth of the number of categories, so that each of them is pulled as
    hard in a step, whatever their number: 0.2 for 10, 2 for 100, 4 for 200."""
    pseudo_share: UnitInterval = 0.5
    """Share of the debiased loss that comes from pseudo-labels."""
    waits: bool = field(default=True, metadata={"before": False})
    """Whether the debiased loss rises with the ramp of L_align and L_new: early pseudo-labels are poor, and on few
    images what they teach stays."""


@dataclass
class PairingConfig:
    """Which unlabelled images are grouped with a labelled anchor."""

    mu: LargeInt = 7
    """Unlabelled images of the batch that each anchor draws; it keeps the floor(mu * rho) most known ones."""
    filter: Literal["none", "pseudo_match"] = "pseudo_match"
    """none: any unlabelled image. pseudo_match: only those that the classifier puts in the anchor's class."""


@dataclass
class NewConfig:
    """The relational consistency loss L_new."""

    tau: Positive = 0.07
    """Temperature of the similarities."""
    sharpen: Weight = 6.0
    """Power of w_new: an image that may be known counts little, so that L_new cannot pull it off its class; 1 as
    printed."""


@dataclass
class RPCConfig(SimGCDConfig):
    """Settings of RPC."""

    base: Literal["simgcd", "debgcd"] = "debgcd"
    """L_baseline: SimGCD's losses, or those plus DebGCD's debiased classifier."""
    lambda_1: Weight = 0.5
    """Weight of the behaviour alignment L_align."""
    lambda_2: Weight = 0.3
    """Weight of the relational consistency L_new."""
    alpha: Weight = 0.3
    """Strength of the embedding fusion."""
    ramp_epochs: Natural = 30
    """Epochs over which lambda_1 and lambda_2 rise from 0 to their values; 0 for at once."""
    prototype_momentum: UnitInterval = 0.99
    """Momentum of the moving class means that signatures are measured against."""
    ova: OVAConfig = field(default_factory=OVAConfig)
    """The one-vs-all heads."""
    debias: DebiasConfig = field(default_factory=DebiasConfig)
    """The debiased classifier of the DebGCD base."""
    pairing: PairingConfig = field(default_factory=PairingConfig)
    """The groups around labelled anchors."""
    new: NewConfig = field(default_factory=NewConfig)
    """The relational consistency loss."""


READING: dict[str, Any] = {
    "base": "simgcd",
    "lambda_1": 0.5,
    "lambda_2": 0.3,
    "alpha": 0.3,
    "ramp_epochs": 30,
    "prototype_momentum": 0.99,
    "pairing.mu": 7,
    "pairing.filter": "none",
    "new.tau": 0.07,
    "new.sharpen": 1.0,
}
"""The paper's text, read as literally as can be trained."""
