"""What a discovery would go on with, before it does: `holotype discover --dry-run`. Nothing is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holotype.config.schema import DiscoverConfig
from holotype.data.table import Table
from holotype.discovery.asked import read_asked
from holotype.discovery.claim import begun_network
from holotype.discovery.classes import understand
from holotype.discovery.collection import look_at, read_collection
from holotype.discovery.corrected_number import foreseen
from holotype.discovery.difference import compare, compare_labels, with_marks
from holotype.discovery.going_on import Changed, among, asked_now, check_same, outcome_of, seen_by
from holotype.discovery.look import words_of_room
from holotype.discovery.moved import Moves, moved
from holotype.discovery.rounds import (
    Begun,
    Played,
    edits_in,
    given_to,
    last_round,
    next_number,
    play,
    round_folder,
)
from holotype.discovery.taking_part import check_placeable
from holotype.results.edits import check_run


@dataclass(frozen=True)
class Foreseen:
    """Of a discovery."""

    lines: list[str]
    """On what has changed since the last round, and on the edits that would take part in another one; none where there
    was no round."""
    trains: bool = True
    """Would a round be trained?"""
    to_embed: int | None = None
    """Images that the rounds before have not embedded; None = all."""


def foresee(
    folder: Path, table: Table, config: DiscoverConfig, edits: Path | None = None, progress: bool = False
) -> Foreseen:
    """What a discovery would do now. What could not go on is refused as it would be then."""
    begun_network(folder, config.network)
    given = edits_in(folder, edits) if edits is not None else []
    check_run(folder, given)
    if not (last := last_round(folder)):
        return Foreseen([])
    known = read_collection(folder)
    now = look_at(table, known, progress)
    before = seen_by(folder, last)
    difference = compare(before, now)
    check_same(folder, table, before, now, difference)
    means = known.means if known else {}
    today = now.labels(means)
    played = play(folder, given, {path: today[there] for there, path in difference.then.items()})
    words = understand(now, before, difference.then, means, outcome_of(played))
    table = words.spoken(table)
    labels = dict(zip(now.images, table.label, strict=True))
    compare_labels(difference, before, with_marks(now, labels, frozenset()))
    played, then = played.moved(difference.moves), read_asked(round_folder(folder, last))
    asked = asked_now(config, table, now)
    told, here = played.without(played.overruled(difference.relabelled, labels)), now.images.keys()
    changed = Changed(
        last,
        now.root if before.root != now.root else "",
        difference,
        words,
        asked.others(then) if then else [],
        edits_before=played.given,
        edits=told.given,
        more=among(given_to(folder, last).moved(difference.moves), here) != among(told.given, here),
    )
    lines = [f"Since round {last} in {folder}: {difference.words or 'no other images or labels'}."]
    if not changed.trains:
        stands = f"No other round would be trained: the result of round {last} stands."
        return Foreseen([*lines, *changed.details(), stands], trains=False)
    check_placeable(told.given.apply(table), told.given, folder)
    number = next_number(folder, Begun(told.given, with_marks(now, labels, difference.relabelled), asked))
    lines += [*changed.details(), "Another round would be trained.", *told.told(number, here, folder)]
    lines += _number(config.k, table, told, Moves(now.root, difference.moves))
    return Foreseen(lines, to_embed=len(difference.new) + len(difference.repaired))


def _number(k: int | str, table: Table, told: Played, where: Moves) -> list[str]:
    """How many categories there would be, as far as edits have a say. table: with the labels that images came with."""
    round = told.given.apply(table)
    if k != "auto":
        return _room(int(k), len(table.known), len(round.known))
    found = outcome_of(told) if told.given.binds else None
    return [foreseen(moved(found, where), round)] if found else []


def _room(k: int, came: int, known: int) -> list[str]:
    """What --k leaves for new categories, where edits have made classes that the folder does not show. came: classes
    of the labels that images came with; known: those of edits included."""
    if known <= came:
        return []
    so = words_of_room(k, known) if k >= known else f"--k {k} becomes {known}."
    return [f"With the labels from edits there are {known} known classes, so {so}"]
