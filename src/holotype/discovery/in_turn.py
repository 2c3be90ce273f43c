"""Methods that the trainings of a round take in turn (`--method rpc,uno`): which of them can train it.

A method that cannot leaves its turns to the others, and the reason is told. Where none can, the reason of the first one
ends the discovery, as it does where one method was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from holotype.discovery.sizes import expects_sizes
from holotype.errors import InputError
from holotype.models.backbone import Backbone
from holotype.runs.build import RunData, check_fits
from holotype.runs.resolve import default_experiment


def fitting(
    methods: Sequence[str], data: RunData, backbone: Backbone, *, long_tail: bool = False
) -> tuple[tuple[str, ...], list[str]]:
    """The methods that can train on the data, and a sentence on each of the others.

    long_tail: whether categories of very different sizes are expected.
    """
    reasons = {method: _reason(method, data, backbone, long_tail) for method in methods}
    able = tuple(method for method, reason in reasons.items() if reason is None)
    if not able:
        raise next(reason for reason in reasons.values() if reason is not None)
    return able, [f"{method} does not take part. {reason}" for method, reason in reasons.items() if reason]


def _reason(method: str, data: RunData, backbone: Backbone, long_tail: bool) -> InputError | None:
    """Why it cannot train on the data; None if it can."""
    if long_tail and not expects_sizes(method):
        return InputError("It expects categories of equal size, and those here differ.")
    try:
        check_fits(default_experiment(method, "images"), data, backbone)
    except InputError as error:
        return error
    return None
