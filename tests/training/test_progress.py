"""Ctrl-C becomes a flag for as long as training lasts; the bar shows what it is given, or nothing at all."""

import contextlib
import os
import signal

import pytest

from holotype.errors import Stopped, signal_of
from holotype.training.progress import StopRequest, TrainingBar


@pytest.fixture
def caught():
    """Handlers of ours in place of the test runner's, which list the signals that reach them."""
    seen: list[int] = []
    before = {n: signal.signal(n, lambda number, _: seen.append(number)) for n in SIGNALS}
    yield seen
    for number, handler in before.items():
        signal.signal(number, handler)


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_raises_the_flag_and_whoever_asks_again_later_need_not_wait(caught, monkeypatch, number):
    now = [100.0]
    monkeypatch.setattr("holotype.training.progress.time.monotonic", lambda: now[0])
    with StopRequest() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        now[0] += 4
        os.kill(os.getpid(), number)  # an impatient second one does not cut the save short
        assert stop.requested
        with pytest.raises(Stopped) as stopped:
            stop.leave("epoch 3")
        assert (str(stopped.value), stopped.value.number) == ("epoch 3", number)
        now[0] += 2
        with pytest.raises(KeyboardInterrupt) as ended:
            os.kill(os.getpid(), number)
    assert signal_of(ended.value) == number
    assert caught == []


def test_afterwards_signals_reach_whom_they_reached_before(caught):
    before = [signal.getsignal(number) for number in SIGNALS]
    with contextlib.suppress(ZeroDivisionError), StopRequest():
        assert all(signal.getsignal(number) not in before for number in SIGNALS)
        raise ZeroDivisionError
    assert [signal.getsignal(number) for number in SIGNALS] == before
    for number in SIGNALS:
        os.kill(os.getpid(), number)
    assert caught == list(SIGNALS)


class Term:
    """A loss term that counts how often somebody waits for its value."""

    def __init__(self) -> None:
        self.readings = 0

    def __float__(self) -> float:
        self.readings += 1
        return 0.12345


def test_a_bar_that_is_not_shown_is_silent_and_waits_for_nothing(capfd):
    term = Term()
    with TrainingBar(False, "train", 3) as bar:
        for each in (bar, bar.part("simgcd s0")):
            assert not each.show
            each.advance_to(1)
            each.step({"cls": term})
            each.say("epoch 1: all 0.5")
    assert term.readings == 0
    assert capfd.readouterr() == ("", "")


def test_a_bar_shows_stage_terms_and_lines_on_stderr_and_runs_share_one(capsys):
    with TrainingBar(True, "represent", 7) as bar:
        bar.advance_to(2)
        bar.step({"cls": Term(), "con": Term()})
        bar.say("epoch 1: all 0.500")
        assert bar.done == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert all(word in err for word in ("represent", "3/7", "cls 0.123", "con 0.123", "epoch 1: all 0.500"))
    with TrainingBar(True, "2 runs", 20) as bar:
        one, other = bar.part("simgcd s0"), bar.part("rpc s1")
        with one:  # closing a part leaves the bar to the others
            one.advance_to(4)
            one.step({"cls": Term()})
        other.step({"con": Term()})
        one.advance_to(0)
        one.step({})
        other.say("epoch 1: All 44.4")
        assert bar.done == 4 + 1 + 1 + 1
    shown = capsys.readouterr().err
    assert all(word in shown for word in ("2 runs", "7/20", "s0: cls 0.123", "rpc s1: epoch 1: All 44.4"))
