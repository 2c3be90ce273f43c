"""Schedules against the golden numbers of the released code; how long stages are."""

from pathlib import Path

import numpy as np
import pytest

from holotype.methods import ParamGroup, Progress, Stage
from holotype.methods.schedules import constant, cosine, cosine_lr, drops, linear_warmup, ramp, sigmoid_ramp

GOLDEN = np.load(Path(__file__).parents[1] / "parity/schedules.npz")
CASES = sorted({key.rsplit(".", 1)[0] for key in GOLDEN.files if key.endswith(".lr_used")})


@pytest.mark.parametrize("case", CASES)
def test_lr_and_teacher_temperature_equal_the_released_code(case):
    epochs, lr = int(GOLDEN[f"{case}.epochs"]), float(GOLDEN[f"{case}.base_lr"])
    warmup = int(GOLDEN[f"{case}.warmup_epochs"])
    ours = [cosine_lr(lr, e, epochs) for e in range(epochs)]
    np.testing.assert_allclose(ours, GOLDEN[f"{case}.lr_used"], rtol=1e-9)
    np.testing.assert_allclose(cosine_lr(lr, epochs, epochs), GOLDEN[f"{case}.lr_after_last_step"], rtol=1e-9)
    temps = [linear_warmup(0.07, 0.04, warmup, e, epochs) for e in range(epochs)]
    np.testing.assert_allclose(temps, GOLDEN[f"{case}.teacher_temp"], rtol=1e-9)


def test_short_runs_and_ramps():
    temps = [linear_warmup(0.07, 0.04, 30, e, 5) for e in range(5)]
    assert temps == sorted(temps, reverse=True)
    assert (temps[0], temps[-1]) == (0.07, pytest.approx(0.04))
    assert [ramp(e, 4, 200) for e in range(6)] == [0, 0.25, 0.5, 0.75, 1, 1]
    assert [ramp(e, 30, 6) for e in range(6)] == pytest.approx([0, 1 / 3, 2 / 3, 1, 1, 1])
    assert ramp(0, 0, 200) == ramp(0, 30, 1) == 1
    plain, warm = ([cosine_lr(0.1, epoch, 100, w) for epoch in range(100)] for w in (0, 0.04))
    assert warm[4:] == plain[4:]
    assert [a / b for a, b in zip(warm[:4], plain[:4], strict=True)] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert cosine_lr(0.1, 0, 4, 0.05) == 0.1  # too short for a warm-up


def every_moment(epochs: int = 10, steps: int = 4) -> list[Progress]:
    return [Progress(epoch, epochs, step, steps) for epoch in range(epochs) for step in range(steps)]


def test_a_cosine_falls_and_its_warm_up_rises_in_equal_steps_over_half_of_a_short_stage_at_most():
    found = [cosine(0.1)(at) for at in every_moment()]
    assert (found[0], found[20], found[-1]) == pytest.approx((1.0, 0.55, 0.1), abs=0.01)
    assert found == sorted(found, reverse=True)
    plain, warm = cosine(0.0), cosine(0.0, warmup=2)
    shares = [warm(at) / plain(at) for at in every_moment()]
    assert shares[:9] == pytest.approx([n / 8 for n in range(1, 9)] + [1.0])
    short = [cosine(0.0, warmup=100)(at) / plain(at) for at in every_moment()]
    assert short[18:21] == pytest.approx([19 / 20, 1.0, 1.0])


def test_drops_multiply_at_shares_of_the_stage():
    found = [drops(0.5, 0.75, by=0.1)(at) for at in every_moment()]
    assert found == pytest.approx([1.0] * 20 + [0.1] * 10 + [0.01] * 10)
    assert {constant(at) for at in every_moment()} == {1.0}


def test_the_sigmoid_ramp_is_autonovels():
    golden = np.load(Path(__file__).parents[1] / "parity/autonovel.npz")
    for length, values in zip(golden["rampup__lengths"], golden["rampup__value"], strict=True):
        ours = [sigmoid_ramp(int(t), int(length)) for t in golden["rampup__t"]]
        np.testing.assert_allclose(ours, values, rtol=1e-9)
    assert sigmoid_ramp(150, 150) == sigmoid_ramp(0, 0) == 1


def test_a_stage_is_a_share_of_training_or_a_fixed_number_of_epochs():
    assert (Stage().length(200), Stage(share=0.5).length(200), Stage(share=0.3).length(5)) == (200, 100, 2)
    assert (Stage(share=0.01).length(5), Stage(epochs=7, share=0.5).length(200)) == (1, 7)  # at least one


def test_a_stage_whose_rates_all_have_a_pace_takes_no_warm_up_of_training():
    every, tail = (ParamGroup(prefix, pace=constant) for prefix in ("", "tail"))
    own = ParamGroup("tail", lr=0.1)
    assert [Stage(rates=rates).paced for rates in ((every,), (every, tail))] == [True, True]
    # where others warm up, or a rate of its own goes at the loop's pace
    slow = ((), (ParamGroup("", lr=0.1),), (tail,), (every, own))
    assert not any(Stage(rates=rates).paced for rates in slow)
