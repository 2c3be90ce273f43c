"""The documentation site: every page has a place in it, and it asks no other machine for anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import holotype

TOP = Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"
MADE = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
"""Pages that tools/site_hook.py adds."""


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without running the function that it names."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return yaml.load((TOP / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def pages(nav: Any) -> Iterator[str]:
    """Files that the table of contents names."""
    if isinstance(nav, str):
        yield nav
    else:
        for one in nav.values() if isinstance(nav, dict) else nav:
            yield from pages(one)


def test_every_page_is_in_the_table_of_contents_once(config) -> None:
    """A new page in docs/ needs its line under `nav` of mkdocs.yml."""
    named = list(pages(config["nav"]))
    there = {file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md")} | set(MADE)
    assert sorted(there - set(named)) == []
    assert sorted(set(named) - there) == []
    assert len(named) == len(set(named))


def test_findings_come_before_the_diary(config) -> None:
    (results,) = [one["Results"] for one in config["nav"] if "Results" in one]
    assert [next(pages(one)) for one in results] == ["findings.md", "results.md", "studies/index.md"]
    studies = list(pages(results[-1]))
    assert studies[:2] == ["studies/index.md", "studies/reading.md"]


def test_it_opens_from_disk_and_fetches_nothing(config) -> None:
    assert config["strict"] is True
    assert config["use_directory_urls"] is False
    assert config["theme"]["font"] is False
    assert "offline" in config["plugins"]
    assert "extra_javascript" not in config
    (style,) = config["extra_css"]
    assert "url(" not in (DOCS / style).read_text(encoding="utf-8")
    (script,) = config["extra"]["polyfills"]  # else the plugin `offline` names one of another machine
    assert "iframe-worker" in script
    assert "://" not in (DOCS / script).read_text(encoding="utf-8")


def test_links_are_checked(config) -> None:
    told = {value for group in config["validation"].values() for value in group.values()}
    assert told == {"warn"}
    assert set(config["validation"]["links"]) >= {"not_found", "anchors"}
    (line,) = [
        one for one in (TOP / "Makefile").read_text(encoding="utf-8").splitlines() if "mkdocs build" in one
    ]
    assert line.endswith(
        "mkdocs build --strict"
    )  # with --quiet warnings are not counted, and nothing is strict


def test_every_public_name_has_its_place_in_the_reference() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    told = {path.rpartition(".")[2] for path in re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)}
    assert told | {"METHODS", "__version__"} == set(holotype.__all__)
    for path in re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE):
        module, _, name = path.rpartition(".")
        assert getattr(holotype, name).__module__ == module


def test_pictures_have_words() -> None:
    for file in [TOP / "README.md", *DOCS.rglob("*.md")]:
        for words, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", file.read_text(encoding="utf-8")):
            assert len(words.split()) > 3, (file.name, target)


def test_what_is_built_is_not_tracked() -> None:
    assert "/site/" in (TOP / ".gitignore").read_text(encoding="utf-8").splitlines()
