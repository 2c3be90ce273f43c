"""A commit that renames is told from one that also changes something."""

from __future__ import annotations

import pytest
from tools.check_rename import differences

OLD = {
    "pkg/old.py": '''"""Of old."""
import logging
from pkg import helper
__all__ = ["told"]
log = logging.getLogger("pkg")
class Told:
    """A class."""
    kept: int = 1
    """Of it."""
    def given(self, found, *, kept=2):
        from pkg.helper import lazily
        self.register_buffer("standing", found)
        return helper.do(found, kept=kept) + lazily(self.kept)
''',
    "pkg/other.py": 'import logging\nlog = logging.getLogger("pkg")\ndef f(x):\n    return x\n',
    "tests/t.py": "def test(patch):\n    patch.setattr('pkg.old.Told.given', 1)\n",
}
NEW = {
    "pkg/new.py": '''import logging
from pkg import tools
log = logging.getLogger("pkg")
def f(x):
    return x
class Record:
    """What it is."""
    labels: int = 1
    def predict(self, found, *, labels=2):
        from pkg.tools import lazily
        self.register_buffer("is_labelled", found)
        return tools.do(found, labels=labels) + lazily(self.labels)
''',
    "tests/t.py": "def test(patch):\n    patch.setattr('pkg.new.Record.predict', 1)\n",
}
RENAMES = {
    "pkg.old": "pkg.new",
    "pkg.helper": "pkg.tools",
    "Told": "Record",
    "given": "predict",
    "kept": "labels",
    "standing": "is_labelled",
}


def test_renamed_moved_and_merged() -> None:
    assert differences(OLD, NEW, RENAMES) == []
    assert differences(OLD, OLD, {}, docstrings=True) == []


def test_docstrings_count_where_asked() -> None:
    assert differences(OLD, NEW, RENAMES, docstrings=True)


@pytest.mark.parametrize("missing", RENAMES)
def test_every_rename_must_be_in_the_map(missing: str) -> None:
    assert differences(OLD, NEW, {old: new for old, new in RENAMES.items() if old != missing})


@pytest.mark.parametrize(
    ("before", "after"),
    [("return x", "return x + 1"), ("labels=2", "labels=3"), ('getLogger("pkg")', 'getLogger("new")')],
)
def test_a_change_of_code_is_found(before: str, after: str) -> None:
    changed = {path: text.replace(before, after) for path, text in NEW.items()}
    found = differences(OLD, changed, RENAMES)
    assert {line[0] for line in found} == {"-", "+"}


def test_a_lost_definition_is_found() -> None:
    shorter = NEW["pkg/new.py"].replace("def f(x):\n    return x\n", "")
    assert differences(OLD, {**NEW, "pkg/new.py": shorter}, RENAMES) == ["- pkg/other.py:3 f"]
