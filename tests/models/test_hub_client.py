"""A hub that does not answer: one line while its client tries again, and a reason in a few words."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest
from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError

from holotype.models.hub_client import MAX_ERROR_TEXT, download_error, hub_request, short_error

OURS = "The Hugging Face hub does not answer; it is asked again for up to a minute."


def speak(message: str, level: int = logging.WARNING) -> None:
    """As the client does."""
    logging.getLogger("huggingface_hub.utils._http").log(level, message)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the client's own handler lets through, which is what people would see."""
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "handlers", [Handler()])
    return lines


def test_the_tries_become_one_line(shown: list[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="holotype"):
        with hub_request():
            for number in range(1, 6):
                speak("'Name or service not known' thrown while requesting HEAD https://huggingface.co/x")
                speak(f"Retrying in 1s [Retry {number}/5].")
            speak("a token is wrong")
            speak("broken", logging.ERROR)
        speak("Retrying in 1s [Retry 1/5].")
    assert shown == ["a token is wrong", "broken", "Retrying in 1s [Retry 1/5]."]  # after it all is as before
    assert [one.getMessage() for one in caplog.records if one.name.startswith("holotype")] == [OURS]


def test_verbose_shows_them(shown: list[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="holotype"), hub_request():
        speak("Retrying in 1s [Retry 1/5].")
    assert shown == ["Retrying in 1s [Retry 1/5]."]


def test_the_client_still_speaks_in_these_words() -> None:
    """The real one, whose first try of a port where nobody listens fails at once."""
    code = """
import logging
from huggingface_hub.utils import _http
from holotype.models.hub_client import asking_hub
logging.basicConfig(level=logging.INFO, format="%(message)s")
logging.getLogger("huggingface_hub").propagate = False
with asking_hub():
    try:
        _http.http_backoff("HEAD", "http://127.0.0.1:9/", max_retries=2, base_wait_time=0, max_wait_time=0)
    except Exception as error:
        print(type(error).__name__)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "NO_PROXY": "*"}
    )
    assert done.stderr.splitlines() == [OURS]
    assert "Error" in done.stdout


def test_the_reason_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = LocalEntryNotFoundError(
        "An error happened while trying to locate the file on the Hub and so on"
    )
    assert download_error(missing) == "it does not answer"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert download_error(missing) == "HF_HUB_OFFLINE forbids to ask it"
    assert download_error(ConnectionError("no route\nat all")) == "ConnectionError: no route"


def test_a_long_error_is_cut_between_words() -> None:
    said = short_error(ValueError("word " * 60))
    assert said.endswith("word ...")
    assert len(said) < MAX_ERROR_TEXT + 30
    assert short_error(ValueError()) == "ValueError"
