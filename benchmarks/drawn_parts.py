"""What the drawings of several methods have in common: the way to the feature, heads, losses, and the end.

Numbers are read from the methods' settings, views from their stages.
"""

from __future__ import annotations

from flow import Box, Loss, Parts, Sees

from holotype.methods import METHODS
from holotype.runs.cards import about

SET = {name: kind.Config() for name, kind in METHODS.items()}
"""Settings of the methods by default."""


def learns(title: str, words: str) -> Box:
    return Box(title, words, "learns")


def kept(title: str, words: str) -> Box:
    return Box(title, words, "kept")


def term(name: str, sees: Sees, words: str, *more: str) -> Loss:
    """A loss whose symbol is its name in the code; more: the terms that are the same on other features."""
    return Loss((f"L_{{{name}}}",), words, (sees,), (name, *more))


# -- the way to the feature ---------------------------------------------------------------------------

VIEWS = {
    (2, 0): Box("Two views", "crop and flip"),
    (2, 1): Box("Three views", "two weak: crop and flip; one strong"),
}
"""By the numbers of weak and of strong ones."""
IMAGES = Box("labelled and unlabelled images", kind="images")
LAST = learns("Last block", "gives the feature f")


def network(name: str, *before: Box, last: Box = LAST, **after: Box) -> Parts:
    """The way of an image to its feature. before: what is added to images or to blocks."""
    views = about(name).stages[0].views
    start: Parts = {"images": IMAGES, "views": VIEWS[views.weak, views.strong]}
    added = {part.title: part for part in before}
    return {**start, **added, "frozen": Box("Frozen blocks", kind="frozen"), "last": last, **after}


# -- heads and losses ---------------------------------------------------------------------------------

HEAD = learns("Contrastive head", f"an MLP, then {SET['gcd'].proj_out:,} directions")
PROJECTOR = learns("Projector g", "an MLP: z = g(f)")
CLASSIFIER = learns("Classifier", "a prototype for each of K categories: q = cosines")
BOTH = learns("SimGCD's two heads", "projector: z = g(f)\nclassifier: q = cosines")
DEBIASED = learns("Debiased classifier", "K prototypes of its own: q′")

CONTRAST = {
    "con_u": term("con_u", "all", "all images: a view finds the other view of its image"),
    "con_s": term("con_s", "labelled", "labelled images: those of one class come together"),
}
CLS_S = term("cls_s", "labelled", "labelled images: cross entropy with the label")
CLS_U = term("cls_u", "all", "all images: a view predicts what the other one says")
ME = term("me", "all", "all images: on average, every category is in use")
BASE = (CLS_U, ME, CLS_S, *CONTRAST.values())
FIVE = Loss(
    tuple(one.symbols[0] for one in BASE),
    "the five losses of SimGCD",
    tuple(one.sees[0] for one in BASE),
    tuple(one.terms[0] for one in BASE),
)

# -- the end ------------------------------------------------------------------------------------------

EVERY = Box("Every image", "its centre crop: f")
CENTRES = Box(
    "Semi-supervised k-means",
    f"on f, without a head; labelled images stay with their class; best of {SET['gcd'].n_init} starts",
)
NEAREST = Box("Category: the nearest of K centres", "how known: the probability of the known classes")
LARGEST = Box("Category: the largest of K", NEAREST.words)
BY_CENTRES = (EVERY, CENTRES, NEAREST)
BY_Q = (EVERY, Box("Classifier", "q of the image"), LARGEST)
