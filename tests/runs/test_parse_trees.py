"""Trees of settings: flat by dotted names, plain as JSON gives them back."""

from holotype.config.parse import flatten, plain_tree


def test_a_tree_is_flat_by_dotted_names() -> None:
    assert flatten({"a": {"b": {"c": 1}, "d": [2, 3]}, "e": None}) == {"a.b.c": 1, "a.d": [2, 3], "e": None}
    assert flatten({}) == flatten({"a": {}}) == {}


def test_plain_is_what_a_file_would_give_back() -> None:
    assert plain_tree({"a": (1, 2.5), "b": {"c": ("x",)}}) == {"a": [1, 2.5], "b": {"c": ["x"]}}
