"""Seconds by step, and Ctrl-C within one."""

import pytest

from holotype.discovery.rounds import StepTimer
from holotype.errors import Interrupted, Stopped


def test_steps_are_added_up_and_a_stop_names_its_step():
    clock = StepTimer()
    for _ in range(2):
        with clock.step("counting"):
            pass
    assert clock.seconds == {"counting": 0.0}
    with pytest.raises(Stopped, match="counting"), clock.step("counting"):
        raise KeyboardInterrupt
    with pytest.raises(Stopped, match="counting") as stopped, clock.step("counting"):
        raise Interrupted(15)
    assert stopped.value.number == 15
    with pytest.raises(ValueError, match="other"), clock.step("counting"):
        raise ValueError("other")
