"""Class-name hygiene: near-duplicate spellings and names of unsorted folders."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

SHORTEST_PLURAL = 4
"""Letters from which on a last s is taken for a plural."""
LONG_NAME, LONG_WORD = 8, 5
"""Letters of a name, and of the word in question, from which on one letter more, less or other is taken for a slip."""
UNSORTED_NAMES = {
    *("unsorted", "tosort", "sort", "sortme", "todo", "misc", "miscellaneous", "various", "mixed", "inbox"),
    *("new", "incoming", "unknown", "unidentified", "unclassified", "uncategorized", "uncategorised", "none"),
    *("other", "others", "rest", "remaining", "tmp", "temp", "download", "downloads", "undefined", "unnamed"),
    *("dcim", "camera", "cameraroll"),
}
"""Folders that people call so hold what nobody has sorted; here without blanks and the like."""
DATE = re.compile(r"(19|20)\d\d([-_. ]?(0[1-9]|1[0-2])([-_. ]?(0[1-9]|[12]\d|3[01]))?)?")
"""2023, 2023-05, 20230512: when images were taken, not what they show."""
CAMERA_NAMES = re.compile(r"[1-9]\d\d[A-Za-z_]\w{4}")
"""100CANON, 101MSDCF, 102_PANA: folders that cameras make, three digits and five signs."""


def similar_names(names: Iterable[str]) -> list[list[str]]:
    """Return groups of names that probably mean one class, each sorted, in the order of their first names.

    Case, blanks, underscores, hyphens, accents and a last s do not count, nor does one letter in a long word. Digits
    and single letters do: type 1, type 2 and type a are three.
    """
    names = sorted(set(names))
    group: dict[str, set[str]] = {}
    of_key: dict[str, set[str]] = {}
    for name in names:
        group[name] = of_key.setdefault(_key(name), set())
        group[name].add(name)
    for one, other in _typos(names):
        if group[one] is not group[other]:
            group[one] |= group[other]
            for name in group[other]:
                group[name] = group[one]
    found = {id(members): sorted(members) for members in group.values() if len(members) > 1}
    return sorted(found.values())


def nfc(name: str) -> str:
    """Return the name with each letter and its accents in one (NFC). Folders that were made on a Mac have them apart,
    browsers and lists do not, and both look the same."""
    return unicodedata.normalize("NFC", name)


def unsorted_names(names: Iterable[str]) -> list[str]:
    """Return the names that sound like a heap of unsorted images, sorted."""
    return sorted(
        name
        for name in set(names)
        if "".join(_words(name)) in UNSORTED_NAMES or DATE.fullmatch(name) or CAMERA_NAMES.fullmatch(name)
    )


def _words(name: str) -> list[str]:
    """Return letters and digits in small letters, without accents; everything else parts words."""
    plain = unicodedata.normalize("NFKD", name.casefold())
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return re.findall(r"[^\W_]+", plain)


def _key(name: str) -> str:
    joined = "".join(_words(name))
    if not joined:
        return name  # signs only
    is_plural = joined.endswith("s") and len(joined) >= SHORTEST_PLURAL
    return joined[:-1] if is_plural else joined


def _typos(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of long names in which one long word differs by a letter.

    Two words that differ so share a form with one letter left out; only names that share one are compared.
    """
    forms: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for name in names:
        words = _words(name)
        for place, word in enumerate(words):
            rest = sum(map(len, words)) - len(word)
            if len(word) < LONG_WORD - 1 or not word.isalpha() or rest + len(word) < LONG_NAME - 1:
                continue
            for cut in {word, *(word[:i] + word[i + 1 :] for i in range(len(word)))}:
                others = forms.setdefault((*words[:place], f"\0{cut}", *words[place + 1 :]), [])
                for other, near in others:
                    longest = max(len(word), len(near))
                    is_long = longest >= LONG_WORD and rest + longest >= LONG_NAME
                    if is_long and word[0] == near[0] and _one_letter_apart(near, word):
                        yield other, name
                others.append((name, word))


def _one_letter_apart(one: str, other: str) -> bool:
    """Return whether there is one letter more, less or other, or two neighbours are swapped."""
    short, long = sorted((one, other), key=len)
    same = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(long) - len(short) == 1:
        return short[same:] == long[same + 1 :]
    if len(long) != len(short):
        return False
    swapped = short[:same] + short[same : same + 2][::-1] + short[same + 2 :]
    return short[same + 1 :] == long[same + 1 :] or swapped == long
