"""What is wrong with a file in a store, as a sentence, out of what pyarrow, fsspec and the hub say of it."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

DENIED = re.compile(
    r"ACCESS_DENIED|AccessDenied|Forbidden|(?:HTTP|status) 403|HTTP 401|Unauthorized|\bgated\b"
    r"|INVALID_ACCESS_KEY|InvalidAccessKeyId|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN"
)
ABSENT = re.compile(r"NO_SUCH|NoSuch|\b404\b")
SILENT = re.compile(r"NETWORK_CONNECTION|curlCode|[Tt]imed out|[Tt]imeout|[Cc]onnect|resolve|retry")
"""What libraries say of a store that refuses, that has no such file, and that does not answer."""


def in_words(address: str, error: Exception) -> str:
    """The sentence. address: as it was given."""
    said = " ".join(str(error).split())
    reason = _reason(said, address)
    if isinstance(error, PermissionError) or DENIED.search(reason):
        return f"{address} may not be read with the rights that are given; check the keys in the environment."
    if "NotFound" in type(error).__name__ or ABSENT.search(reason):
        return f"{address} does not exist; check the address."
    if isinstance(error, ConnectionError | TimeoutError) or SILENT.search(reason):
        return f"{address} does not answer; check the address, the network and the endpoint ({said[:160]})."
    return f"{address} cannot be read ({said[:200]})."


def _reason(said: str, address: str) -> str:
    """What is said without paths and the words of the address, which libraries repeat: a port 40412 or a bucket
    `aggregated` is no reason."""
    spellings = (address, unquote(address), quote(address, safe="/?&=#:@"))
    own = {word for one in spellings for word in re.split(r"[/?&=#:@]+", one) if word}
    longest_first = "|".join(re.escape(word) for word in sorted(own, key=len, reverse=True))
    return re.sub(r"\S*/\S*", "", re.sub(rf"(?<!\w)(?:{longest_first})(?!\w)", "", said))
