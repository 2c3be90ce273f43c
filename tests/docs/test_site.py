"""The documentation site: every page has a place in it, links read well, and it asks no other machine for anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import site_hook
import yaml

import holotype

from .conftest import DOCS, TOP, page


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
    """A new page in docs/ needs its line under `nav` of mkdocs.yml. Findings come before the diary."""
    there = {file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md")} | set(site_hook.PAGES.values())
    assert sorted(pages(config["nav"])) == sorted(there)
    (results,) = [one["Results"] for one in config["nav"] if "Results" in one]
    assert [next(pages(one)) for one in results] == ["findings.md", "results.md", "studies/index.md"]
    assert list(pages(results[-1]))[:2] == ["studies/index.md", "studies/reading.md"]


def test_it_opens_from_disk_fetches_nothing_and_links_are_checked(config) -> None:
    assert (config["strict"], config["use_directory_urls"], config["theme"]["font"]) == (True, False, False)
    assert "offline" in config["plugins"]
    assert "extra_javascript" not in config
    (style,) = config["extra_css"]
    assert "url(" not in (DOCS / style).read_text(encoding="utf-8")
    (script,) = config["extra"]["polyfills"]  # else the plugin `offline` names one of another machine
    assert "iframe-worker" in script
    assert "://" not in (DOCS / script).read_text(encoding="utf-8")
    assert {value for group in config["validation"].values() for value in group.values()} == {"warn"}
    assert set(config["validation"]["links"]) >= {"not_found", "anchors"}


def test_every_public_name_has_its_place_in_the_reference() -> None:
    paths = re.findall(r"^::: ([\w.]+)$", page("api"), re.MULTILINE)
    told = {path.rpartition(".")[2]: path.rpartition(".")[0] for path in paths}
    assert {*told, "METHODS", "__version__"} == set(holotype.__all__)
    assert {name: getattr(holotype, name).__module__ for name in told} == told


@pytest.mark.parametrize(
    ("source", "text", "read"),
    [
        ("docs/methods.md", "[c](../CONTRIBUTING.md#tests)", "[c](contributing.md#tests)"),
        ("docs/methods/rpc.md", "[c](../../CHANGELOG.md)", "[c](../changelog.md)"),
        ("docs/methods/rpc.md", "[r](../results.md#all-methods)", "[r](../results.md#all-methods)"),
        ("docs/performance.md", "[README](../README.md#faster)", "[README](index.md)"),
        ("CONTRIBUTING.md", "[data](docs/data.md)", "[data](data.md)"),
        ("docs/data.md", "[one](../examples/cms.py)", "one (`examples/cms.py` in the repository)"),
        ("docs/data.md", "[examples/cms.py](../examples/cms.py)", "`examples/cms.py`"),
        ("docs/data.md", "| 57.5 ± 0.8 | 20 to 29 |", "| 57.5\xa0±\xa00.8 | 20 to 29 |"),
        *(("docs/data.md", text, text) for text in ("[x](https://example.org/a.md)", "[x](#here)")),
        *(("docs/data.md", text, text) for text in ("[gone](../GONE.md)", "```\n[c](../LICENSE)\n```")),
    ],
)
def test_links_and_figures_read_well_on_the_site(source: str, text: str, read: str) -> None:
    """A link leads to a page or says which file it means; broken ones, pictures and code stay as they are."""
    page = source.removeprefix("docs/").lower() if source.startswith("docs/") else source.lower()
    assert site_hook.moved(text, source, page) == read
