"""Licences of weights: which are free of strings, and what to say of those that are not."""

from __future__ import annotations

import re

FREE_LICENCES = frozenset(
    {"apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "cc0-1.0", "cc-by-4.0", "isc", "unlicense"}
)
"""Use of any kind, results and fine-tunes included, with no more asked than to keep the notice."""
UNKNOWN = "unknown"
NO_COMMERCE = re.compile(r"(^|-)nc(-|$)|non-?commercial|research|amlr", re.IGNORECASE)
"""Of licences that forbid commercial use: cc-by-nc-4.0, fair-noncommercial-research-license, apple-amlr."""
CUSTOM_TERMS = {
    "dinov3-license": "Meta's DINOv3 licence: whoever passes on the weights, or a model made from them, passes on its "
    "terms, and some uses are forbidden (https://ai.meta.com/resources/models-and-libraries/dinov3-license)",
    "sapiens2-license": "Meta's Sapiens2 licence, with terms of its own",
    "apple-ascl": "Apple's sample code licence, with terms of its own",
}


def has_conditions(licence: str) -> bool:
    return licence.lower() not in FREE_LICENCES


def licence_terms(licence: str) -> str:
    """What somebody must know before they use the weights for more than a look; "" for a free licence."""
    if not has_conditions(licence):
        return ""
    if licence in ("", UNKNOWN):
        return "Nobody says under which licence its weights are; find out before you publish or sell what comes of it."
    if licence.lower() in CUSTOM_TERMS:
        return f"Its weights are under {CUSTOM_TERMS[licence.lower()]}."
    if NO_COMMERCE.search(licence):
        return f"Its weights are under {licence}, which forbids commercial use, of models made from them too."
    return f"Its weights are under {licence}, with terms of its own; read them before you pass on a model made of them."


def licence_text(name: str, licence: str) -> str:
    """The line that is printed when weights are loaded."""
    words = licence_terms(licence)
    return f"Backbone {name}: {words}" if words else f"Backbone {name}: licence {licence}."
