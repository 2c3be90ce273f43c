"""Stages: how long they are, and what a moment within one is."""

from __future__ import annotations

import pytest

from holotype.methods import ParamGroup, Progress, Stage
from holotype.methods.schedules import constant


@pytest.mark.parametrize(
    ("stage", "epochs", "length"),
    [
        (Stage(), 200, 200),
        (Stage(share=0.5), 200, 100),
        (Stage(share=0.3), 5, 2),
        (Stage(share=0.01), 5, 1),  # at least one
        (Stage(epochs=7, share=0.5), 200, 7),
    ],
)
def test_a_stage_is_a_share_of_training_or_a_fixed_number_of_epochs(stage, epochs, length):
    assert stage.length(epochs) == length


def test_progress_goes_from_nothing_to_all_of_the_stage_step_by_step():
    found = [Progress(epoch, 3, step, 4).progress for epoch in range(3) for step in range(4)]
    assert found == pytest.approx([n / 12 for n in range(12)])
    assert Progress(5, 10).progress == 0.5


@pytest.mark.parametrize(
    ("rates", "paced"),
    [
        ((), False),
        ((ParamGroup("", pace=constant),), True),
        ((ParamGroup("", lr=0.1),), False),  # a rate of its own, at the loop's pace
        ((ParamGroup("tail", pace=constant),), False),  # the others warm up
        ((ParamGroup("", pace=constant), ParamGroup("tail", lr=0.1)), False),
        ((ParamGroup("", pace=constant), ParamGroup("tail", pace=constant)), True),
    ],
)
def test_a_stage_whose_rates_all_have_a_pace_takes_no_warm_up_of_training(rates, paced):
    assert Stage(rates=rates).paced is paced
