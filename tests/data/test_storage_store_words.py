"""What libraries say of a store becomes a sentence with the right reason, whatever the address is called."""

from __future__ import annotations

import pytest

from holotype.data.storage import storage_error_text


@pytest.mark.parametrize(
    ("address", "error", "words"),
    [
        # a port or a name that libraries repeat is no reason
        (
            "s3://b/a?endpoint_override=h:40412",
            OSError("curlCode: 7, connect to h port 40412"),
            "does not answer",
        ),
        (
            "s3://aggregated/a",
            OSError("key 'a' in bucket 'aggregated': AWS Error NO_SUCH_KEY"),
            "does not exist",
        ),
        (
            "s3://b/404/connect.tar",
            OSError("key '404/connect.tar' in bucket 'b': SlowDown"),
            "cannot be read",
        ),
        ("hf://datasets/a/NoSuch", OSError("datasets/a/NoSuch: gated"), "may not be read"),
        ("s3://b/my%20gated/x", OSError("key 'my%20gated/x' in bucket 'b': SlowDown"), "cannot be read"),
        ("s3://b/my gated/x", OSError("key 'my%20gated/x' in bucket 'b': SlowDown"), "cannot be read"),
        ("s3://b/dir", OSError("key 'dir/aggregated/1.jpg' in bucket 'b': SlowDown"), "cannot be read"),
        ("s3://b/dir", OSError("key 'dir/poetry/retry.jpg' in bucket 'b': SlowDown"), "cannot be read"),
        ("hf://datasets/a/b", OSError("404 Client Error"), "does not exist"),
        ("s3://b/a", OSError("HTTP status 403"), "may not be read"),
    ],
)
def test_the_words_of_an_address_are_no_reason(address: str, error: Exception, words: str) -> None:
    said = storage_error_text(address, error)
    assert said.startswith(address)
    assert words in said


def test_what_kind_of_error_it_is_counts_too() -> None:
    assert "may not be read" in storage_error_text("s3://b/a", PermissionError("no"))
    assert "does not answer" in storage_error_text("s3://b/a", TimeoutError("no"))
    assert "does not exist" in storage_error_text(
        "hf://datasets/a/b", type("RepositoryNotFoundError", (Exception,), {})("no")
    )
