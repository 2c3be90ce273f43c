"""Client of the Hugging Face hub: one log line for all retries, errors in a few words."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

CLIENT = "huggingface_hub"
HUB_RETRIES = ("thrown while requesting", "Retrying in ")
"""What the client's lines about a try hold."""
MAX_ERROR_TEXT = 150
"""Characters of an error that are told."""

log = logging.getLogger(__name__)


class _RetryLog(logging.Filter):
    """Lets no line about a try pass; the first one is told in other words."""

    def __init__(self) -> None:
        super().__init__()
        self.told = False

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno > logging.WARNING or not any(words in record.getMessage() for words in HUB_RETRIES):
            return True
        if not self.told:
            self.told = True
            log.info("The Hugging Face hub does not answer; it is asked again for up to a minute.")
        return False


@contextmanager
def hub_request() -> Iterator[None]:
    """Around calls of the client, which says two lines for each of a dozen tries; --verbose shows them all."""
    import huggingface_hub.utils  # noqa: F401 (brings the handlers of its logger)

    handlers = [] if log.isEnabledFor(logging.DEBUG) else logging.getLogger(CLIENT).handlers[:]
    tries = _RetryLog()
    for handler in handlers:
        handler.addFilter(tries)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(tries)


def download_error(error: Exception) -> str:
    """The reason in a few words, for a sentence about what could not be fetched."""
    from huggingface_hub import constants
    from huggingface_hub.errors import LocalEntryNotFoundError

    if not isinstance(error, LocalEntryNotFoundError):
        return short_error(error)
    return "HF_HUB_OFFLINE forbids to ask it" if constants.HF_HUB_OFFLINE else "it does not answer"


def short_error(error: Exception) -> str:
    """Kind and first line of an error, cut between words where it is long."""
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    line = lines[0].strip()
    if len(line) > MAX_ERROR_TEXT:
        line = f"{line[:MAX_ERROR_TEXT].rpartition(' ')[0] or line[:MAX_ERROR_TEXT]} ..."
    return f"{type(error).__name__}: {line}"
