"""JSON from files that anybody may have written."""

import pytest

from holotype.machine.json_text import parsed

DEEP = "[" * 100_000


def test_it_is_json() -> None:
    assert parsed('{"a": [1, 2.5, null, "ä"]}') == {"a": [1, 2.5, None, "ä"]}
    assert parsed("ä".join(('"', '"')).encode()) == "ä"


@pytest.mark.parametrize("text", ["", "{", DEEP, DEEP + "]" * len(DEEP), '{"a":' * 100_000, b"\xff\xfe\xff"])
def test_all_that_is_none_is_a_wrong_value(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(text)
