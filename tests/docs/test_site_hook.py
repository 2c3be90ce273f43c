"""Links that leave docs/ read well on the site, figures stay whole, and a broken link is left for mkdocs to find."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import site_hook


@pytest.mark.parametrize(
    ("source", "page", "text", "read"),
    [
        ("docs/methods.md", "methods.md", "[c](../CONTRIBUTING.md#tests)", "[c](contributing.md#tests)"),
        ("docs/methods/rpc.md", "methods/rpc.md", "[c](../../CHANGELOG.md)", "[c](../changelog.md)"),
        (
            "docs/methods/rpc.md",
            "methods/rpc.md",
            "[r](../results.md#all-methods)",
            "[r](../results.md#all-methods)",
        ),
        ("docs/performance.md", "performance.md", "[README](../README.md#faster)", "[README](index.md)"),
        ("CONTRIBUTING.md", "contributing.md", "[data](docs/data.md)", "[data](data.md)"),
        ("docs/data.md", "data.md", "[one](../examples/cms.py)", "one (`examples/cms.py` in the repository)"),
        ("docs/data.md", "data.md", "[examples/cms.py](../examples/cms.py)", "`examples/cms.py`"),
    ],
)
def test_a_link_leads_to_a_page_or_says_which_file_it_means(source, page, text, read) -> None:
    assert site_hook.moved(text, source, page) == read


@pytest.mark.parametrize(
    "text",
    [
        "[x](https://example.org/a.md)",
        "[x](#here)",
        "[gone](../GONE.md)",
        "![a picture](rpc.svg)",
        "```\n[c](../LICENSE)\n```",
    ],
)
def test_other_links_pictures_and_code_stay(text) -> None:
    assert site_hook.moved(text, "docs/data.md", "data.md") == text


def test_figures_are_not_parted_by_the_end_of_a_line() -> None:
    read = site_hook.moved("| 57.5 ± 0.8 | +0.5 (-0.2 to 1.1) | 20 to 29 (10) |", "docs/data.md", "data.md")
    assert read == "| 57.5\xa0±\xa00.8 | +0.5 (-0.2\xa0to\xa01.1) | 20 to 29 (10) |"
    code = "```\n57.5 ± 0.8\n```"
    assert site_hook.moved(code, "docs/data.md", "data.md") == code


def test_pages_from_the_top_of_the_repository_are_moved_once() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="contributing.md"))
    assert site_hook.on_page_markdown("[data](data.md)", page) == "[data](data.md)"
    page.file.src_uri = "data.md"
    assert site_hook.on_page_markdown("[c](../CONTRIBUTING.md)", page) == "[c](contributing.md)"


def test_no_page_of_docs_hides_one_of_them() -> None:
    assert not [page for page in site_hook.PAGES.values() if (site_hook.TOP / "docs" / page).exists()]
    assert all((site_hook.TOP / source).is_file() for source in site_hook.STANDS_FOR)
