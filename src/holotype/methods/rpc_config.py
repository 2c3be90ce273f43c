"""Settings of RPC: one field per choice that the paper leaves open, and the preset of its literal reading."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from holotype.methods.simgcd import SimGCDConfig


@dataclass
class OVAConfig:
    """The one-vs-all heads behind w_old."""

    mode: Literal["joint", "two_stage", "static_table"] = "joint"
    """joint: trained all along. two_stage: trained first, then frozen. static_table: fitted once on the frozen
    backbone's features, so that w_old never changes."""
    arch: Literal["compact", "debgcd"] = "compact"
    """Head: the small one that the paper's parameter count implies, or DebGCD's five layers."""
    score: Literal["max", "at_classifier_argmax", "noisy_or"] = "max"
    """How the scores of all known classes become one s_ID."""
    decouple_grad: bool = True
    """True: the heads learn at full weight and only their gradient into the backbone is scaled by `weight`."""
    weight: float = 0.005
    """Weight beta of the heads' loss (decoupled: of its gradient into the backbone); differs between data sets."""
    pretrain_epochs: int = 20
    """Epochs of the stage that trains the heads first, for the modes two_stage and static_table."""


@dataclass
class DebiasConfig:
    """The debiased classifier of the DebGCD base; differs between data sets."""

    threshold: float = 0.85
    """Smallest classifier probability for which a pseudo-label counts."""
    adl: float = 1.0
    """Weight of the debiased loss."""
    pseudo_share: float = 0.5
    """Share of the debiased loss that comes from pseudo-labels."""


@dataclass
class PairingConfig:
    """Which unlabelled images are grouped with a labelled anchor."""

    mu: int = 7
    """Unlabelled images of the batch that each anchor draws; it keeps the floor(mu * rho) most known ones."""
    filter: Literal["none", "pseudo_match"] = "pseudo_match"
    """none: any unlabelled image. pseudo_match: only those that the classifier puts in the anchor's class."""


@dataclass
class FusionConfig:
    """How embeddings are fused along a group."""

    space: Literal["proj", "feat"] = "proj"
    """proj: normalised projections. feat: backbone features, projected after fusing."""
    scope: Literal["align_only", "all_losses"] = "align_only"
    """align_only: fused embeddings feed L_align. all_losses: fused features also feed the baseline's losses
    (their mean with the unfused ones)."""
    topology: Literal["chain", "star"] = "chain"
    """chain: each row takes from the one before it, as printed. star: every row takes from its anchor."""


@dataclass
class NewConfig:
    """The relational consistency loss L_new."""

    norm: Literal["row_softmax", "exp_shift", "literal"] = "row_softmax"
    """row_softmax: similarities of a row sum to 1. exp_shift: the printed form up to a constant. literal: as printed
    but for pairs of one image, which are left out."""
    tau: float = 0.07
    """Temperature of the similarities."""
    sharpen: float = 6.0
    """Power of w_new: an image that may be known counts little, so that L_new cannot pull it off its class; 1 as
    printed."""
    guard: Literal["none", "soft", "hard"] = "none"
    """Images that the classifier places in a known class: counted, weighted by the probability that it is wrong
    (soft), or left out (hard)."""
    space: Literal["signature", "feature"] = "signature"
    """What is to be alike: how images stand to the prototypes, or their features themselves (for comparison)."""
    detach: bool = True
    """True: similarities and weights carry no gradient; otherwise similar pairs are pushed apart to weigh less."""


@dataclass
class RPCConfig(SimGCDConfig):
    """Settings of RPC."""

    base: Literal["simgcd", "debgcd"] = "simgcd"
    """L_baseline: SimGCD's losses, or those plus DebGCD's debiased classifier, whose values must fit the data: the
    recipes take it on the data sets for which they hold such values."""
    lambda_1: float = 0.5
    """Weight of the behaviour alignment L_align."""
    lambda_2: float = 0.3
    """Weight of the relational consistency L_new."""
    alpha: float = 0.3
    """Strength of the embedding fusion."""
    ramp_epochs: int = 30
    """Epochs over which lambda_1 and lambda_2 rise from 0 to their values; 0 for at once."""
    rho: Literal["ova_ema", "balanced_prior"] | float = "ova_ema"
    """Estimated share of known images among the unlabelled: moving mean of w_old, the share that balanced classes
    would give, or a number."""
    prototypes: Literal["soft_ema", "ema_mean", "epoch_mean", "classifier", "samples"] = "soft_ema"
    """What signatures are measured against: moving class means with or without soft unlabelled members, class means
    of each epoch, the classifier's weights, or one labelled image of each class."""
    prototype_momentum: float = 0.99
    """Momentum of the moving class means."""
    strong_for: Literal["all", "labelled", "unlabelled"] = "all"
    """Whose strong view is strong: the other rows' is their second weak one."""
    share: Literal["batch", "group", "none"] = "batch"
    """Who shares the strong augmentation's operations: the whole batch, an eighth of it, nobody."""
    ova: OVAConfig = field(default_factory=OVAConfig)
    """The one-vs-all heads."""
    debias: DebiasConfig = field(default_factory=DebiasConfig)
    """The debiased classifier of the DebGCD base."""
    pairing: PairingConfig = field(default_factory=PairingConfig)
    """The groups around labelled anchors."""
    fusion: FusionConfig = field(default_factory=FusionConfig)
    """The embedding fusion."""
    new: NewConfig = field(default_factory=NewConfig)
    """The relational consistency loss."""


READING: dict[str, Any] = {
    "base": "simgcd",
    "lambda_1": 0.5,
    "lambda_2": 0.3,
    "alpha": 0.3,
    "ramp_epochs": 30,
    "rho": "ova_ema",
    "prototypes": "soft_ema",
    "prototype_momentum": 0.99,
    "share": "batch",
    "strong_for": "all",
    "temps": "simgcd_code",
    "ova.mode": "joint",
    "ova.arch": "compact",
    "ova.score": "max",
    "ova.decouple_grad": True,
    "pairing.mu": 7,
    "pairing.filter": "none",
    "fusion.space": "proj",
    "fusion.scope": "align_only",
    "fusion.topology": "chain",
    "new.norm": "row_softmax",
    "new.tau": 0.07,
    "new.sharpen": 1.0,
    "new.guard": "none",
    "new.space": "signature",
    "new.detach": True,
}
"""The paper's text, read as literally as can be trained."""
