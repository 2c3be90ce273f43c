"""The digest of a plug-in's source: what counts, what does not, and that files elsewhere share nothing."""

import importlib
import linecache
import sys
from pathlib import Path

import pytest

from holotype.methods import METHODS
from holotype.utils.source_digest import source_digest

COUNTED = {
    "plug_in/__init__.py": "from .method import Mine",
    "plug_in/method.py": "import json\nfrom . import losses\nimport beside\n\n\nclass Mine:\n    pass\n",
    "plug_in/losses.py": "def loss():\n    from plug_in.parts.deep import value\n    return value\n",
    "plug_in/parts/__init__.py": "",
    "plug_in/parts/deep.py": "value = 1\n",
    "beside.py": "value = 1\n",
}
FILES = COUNTED | dict.fromkeys(("plug_in/unused.py", "beside_unused.py"), "value = 1\n")


@pytest.fixture
def digest_of(monkeypatch):
    """Of plug_in.method.Mine in a folder with these files, imported anew."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def find(folder: Path, module: str = "plug_in.method", **changes: str) -> str:
        for name, content in {**FILES, **changes}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
        for name in [*sys.modules]:
            if name.split(".")[0] in ("plug_in", "beside"):
                monkeypatch.delitem(sys.modules, name)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(folder))
            importlib.invalidate_caches()
            return source_digest(importlib.import_module(module).Mine)

    return find


@pytest.mark.parametrize("name", FILES)
def test_what_the_plug_in_imports_from_beside_it_counts_and_nothing_else(digest_of, tmp_path, name):
    before = digest_of(tmp_path / "elsewhere", "plug_in")  # by the name that the package passes on
    assert digest_of(tmp_path) == before
    assert (digest_of(tmp_path, **{name: FILES[name] + "# changed\n"}) != before) is (name in COUNTED)


def test_of_an_installed_package_its_own_files_count_alone(digest_of, tmp_path):
    folder = tmp_path / "site-packages"
    before = digest_of(folder)
    assert digest_of(folder, **{"beside.py": "value = 2\n"}) == before
    assert digest_of(folder, **{"plug_in/losses.py": "value = 2\n"}) != before


def test_methods_of_this_package_have_none_and_a_class_of_a_notebook_is_known_by_its_cell(monkeypatch):
    def run(number: int, names: dict, body: str, head: str = "Mine") -> type:
        """As notebooks do it: every cell has a file name of its own, known to linecache alone."""
        source, cell = f"class {head}:\n    def loss(self):\n        return {body}\n", f"<cell {number}>"
        monkeypatch.setitem(linecache.cache, cell, (len(source), None, source.splitlines(True), cell))
        exec(compile(source, cell, "exec"), names)
        return names[head.partition("(")[0]]

    def made(number: int, body: str) -> str:
        return source_digest(run(number, {"__name__": "no_such_module"}, body))

    def built(number: int, body: str) -> str:
        """On a class of a cell before it, which alone is edited."""
        names = {"__name__": "no_such_module"}
        run(number, names, body)
        return source_digest(run(number + 1, names, "0", "Heir(Mine)"))

    assert made(1, "1") == made(2, "1") != made(3, "2")
    assert built(4, "1") == built(6, "1") != built(8, "2")
    nowhere = [type("Mine", (), {"__module__": "no_such_module"}) for _ in range(2)]
    assert source_digest(nowhere[0]) != source_digest(nowhere[1])
    assert {kind.code_digest for kind in METHODS.values()} == {""}
    wrapper = type("Proxy", (METHODS["rpc"],), {"__module__": "torch.fx.experimental.proxy_tensor"})
    assert wrapper.code_digest == ""  # torch.export makes thousands of them
