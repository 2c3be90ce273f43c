"""YAML with text as values: what PyYAML would turn into something else stays what was written."""

import datetime

import pytest

from holotype.config.parse import cast, parse_values, parse_yaml, write_yaml


def test_values_stay_text() -> None:
    text = "a: off\nb: 1e-4\nc: 2024-01-01\nd: [1, yes]\ne: {f: 0x10}\ng: 'null'\nh: 007"
    assert parse_yaml(text) == {
        "a": "off",
        "b": "1e-4",
        "c": "2024-01-01",
        "d": ["1", "yes"],
        "e": {"f": "0x10"},
        "g": "null",
        "h": "007",
    }
    assert parse_yaml("a: null\nb: ~\nc:") == {"a": None, "b": None, "c": None}


def test_numbers_and_truths_are_values_where_they_are_asked_for() -> None:
    text = "a: off\nb: 1e-4\nc: 2024-01-01\nd: [1, yes, .5]\ne: true\nf: '3'\ng: ~"
    day = datetime.date(2024, 1, 1)
    expected = {"a": "off", "b": 1e-4, "c": day, "d": [1, "yes", 0.5], "e": True, "f": "3", "g": None}
    assert parse_values(text) == expected
    assert parse_values("one: &one {a: 1, b: 2}\ntwo: {<<: *one, b: 3}")["two"] == {"a": 1, "b": 3}


def test_a_number_means_what_people_read() -> None:
    """YAML 1.1 would take the first for 64 and the second for 90. As text they go to whoever knows the setting."""
    assert parse_values("[0100, 1:30, 0x10]") == ["0100", "1:30", "0x10"]
    assert parse_values("[100, -5, +7, 0, 1_000]") == [100, -5, 7, 0, 1000]
    assert cast(parse_values("0100"), int) == 100


def test_merge_keys_are_merged() -> None:
    text = "one: &one {a: 1, b: 2}\ntwo: {<<: *one, b: 3}"
    assert parse_yaml(text)["two"] == {"a": "1", "b": "3"}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a: 1\na: 2", "a stands twice"),
        ("t: {b: 1, b: 2}", "b stands twice"),
        ("a: [1", "expected"),
        ("a: !!int many", "many"),
        ("a: !!python/tuple [1]", "python/tuple"),
        ("? {a: 1}\n: 2", "unhashable"),
    ],
)
def test_what_is_not_yaml_is_said_on_one_line(text: str, word: str) -> None:
    for parse in (parse_yaml, parse_values):
        with pytest.raises(ValueError, match=word) as refused:
            parse(text)
        assert "\n" not in str(refused.value)


def test_what_is_written_is_read_back() -> None:
    content = {"a": "off", "b": "1e5", "c": "grün", "d": None, "e": {"f": "null x"}, "g": ["yes", "3"]}
    assert parse_yaml(write_yaml(content)) == content


def test_what_is_too_deep_is_no_yaml():
    with pytest.raises(ValueError, match="recursion"):
        parse_yaml("[" * 20_000)
