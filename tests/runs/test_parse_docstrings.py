"""The docstrings below fields, of base classes as well, and nothing where there is no source."""

from dataclasses import dataclass, make_dataclass

from holotype.config.parse import field_docs, first_line


@dataclass
class Base:
    """Of the base.

    And more.
    """

    a: int = 1
    """What a
    is."""
    b: int = 2
    c: int = 3
    """What c is."""


@dataclass
class Further(Base):
    c: int = 4
    """What c is now."""
    shared = 5
    """Not a field of the dataclass."""


def test_docs_of_a_class_and_its_bases() -> None:
    assert field_docs(Base) == {"a": "What a is.", "c": "What c is."}
    assert field_docs(Further) == {"a": "What a is.", "c": "What c is now."}
    assert (first_line(Base), first_line(Further)) == ("Of the base.", "")


def test_a_class_within_a_function() -> None:
    @dataclass
    class Within:
        a: str = "%"
        """100 % of it."""

    assert field_docs(Within) == {"a": "100 % of it."}


def test_without_source_there_are_none() -> None:
    assert field_docs(make_dataclass("Made", [("a", int)])) == {}
    space: dict = {}
    exec("from dataclasses import dataclass\n@dataclass\nclass Typed:\n    a: int = 1\n    'lost'", space)
    assert field_docs(space["Typed"]) == {}
