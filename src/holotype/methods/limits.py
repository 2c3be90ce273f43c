"""Settings that ask for more than the data have: they shrink, and a sentence says so."""

from __future__ import annotations


def tell_shrunk(setting: str, asked: int, there: int, of: str) -> list[str]:
    """The sentence about a setting of which only as much is taken as there is; none where there is enough.

    setting: its dotted key. of: what there are too few of, as in `images`.
    """
    if asked <= there:
        return []
    return [f"{setting} asks for {asked:,} and there are only {there:,} {of}, so {there:,} are taken."]
