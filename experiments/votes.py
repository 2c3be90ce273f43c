"""Votes of several trainings and the second opinion: what they know of each other's mistakes.

    python experiments/votes.py cub5 cifar5 sample0 full --cub DIR/CUB_200_2011 --cifar DIR/cifar100-200
    python experiments/votes.py --table

Reads what the trainings of folders.py have said (its --work), and trains nothing.

With --divisions, the trainings of each collection are divided into groups at random, to see how far All depends on the
seeds.

Rule, written before the runs. The probability of an image is a second opinion from the frozen features
(results/calibration.py); it does not know how many trainings agree on the image. Ways to let it know are looked for
on cub5 to cub7, cifar5 to cifar7, sample0 to sample5 and full, with the number of categories counted, five trainings of
RPC and four of UNO+, 500 steps (folders.py --k counted --seeds 5). The best one is looked at once on collections
that chose nothing: cub18 to cub20, cifar18 to cifar20 and sample10 to sample13.

What was chosen on those thirteen, before the others were looked at:
- An image lies where (v + 0.1) (p + 0.1) is largest, v being the share of the votes that a category has and p what the
  second opinion says of it; three times, the opinion learning anew from where the images then lie. All 60.7 in place of
  59.4 by votes alone. Powers, floors of 0 to 0.2 and one round in place of three had 60.1 to 61.0.
- The probability pools the two: that of c is in proportion to the root of (v + 0.1) p. Its error is 0.105, that of the
  second opinion as it was 0.119. Seventy other formulas had 0.105 to 0.31; the root of p v alone 0.117.

Rules for the others, written then: it places images if All minus that by votes alone has a 95 % interval above 0 over
the ten, and over cub12 to cub17 and cifar12 to cifar17, which are told the number of categories. The pool becomes the
probability if the error is no higher than that of the second opinion as it was, in the mean over the ten, and if fewer
mistakes are left among the images that are not doubtful (the 21 % with the lowest probability), as a share of all.

What came of it: +1.0 (-0.7 to 2.7) over the ten, +0.6 (-0.7 to 1.9) over the twelve, so that images go on to be placed
by votes alone. The error fell. Nine trainings of one draw are too few to see a point: on cub12 to cub14 and cifar12 to
cifar14, over 36 groups of each, it was +1.1 (-0.1 to 2.4). So it is asked once more, by a rule that was written before
these were trained: cub24 to cub31 and cifar24 to cifar31, the number of categories counted, nine seeds of each method,
and every figure the mean over six draws of five and four out of nine (--draws 6). If weighed minus votes has a 95 %
interval above 0 over these sixteen, images are placed so. Otherwise by votes alone. The pool becomes the probability if
its error, for the way of placing that is taken, is no higher in the mean than that of the second opinion by itself.

What came of that: +1.4 (0.4 to 2.4), and an error of 0.082 in place of 0.102. So a discovery does both
(docs/studies/ensembles.md).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from folders import embed, read_said
from harness import (
    RESULTS,
    Collection,
    Judge,
    calibration_error,
    find_collection,
    in_words,
    one_sentence,
    read_rows,
    roots_of,
    run_facts,
    script_parser,
    write_record,
)
from holotype.config.schema import BackboneConfig
from holotype.models.backbone import load_backbone
from holotype.results.calibration import calibrate
from holotype.results.ensemble import Consensus, Training, VoteShares, pool_with_lda, vote_consensus

RECORD = RESULTS / "votes.jsonl#votes"
TURNS = {"rpc": 5, "uno": 4}
"""Of nine trainings in turn."""
IN_TURN = (9, 15)
"""Trainings of a group, as many as `holotype discover` makes where one takes 30 and 10 seconds at most."""
LISTED = 0.21
"""Share of the images that are called doubtful here."""
CHOSE = re.compile(r"cub[567]|cifar[567]|sample[0-5]|full")
Row = dict[str, Any]


def voices(work: Path, collection: str) -> tuple[dict[str, list[Training]], int]:
    """The trainings of each method, and the categories that each has."""
    found, k = {}, 0
    for method in TURNS:
        category, probability, k = read_said(work, collection, method)
        found[method] = [Training(*one) for one in zip(category, probability, strict=True)]
    return found, k


def draw(said: dict[str, list[Training]], draws: int) -> list[list[Training]]:
    """Nine trainings in turn: the first ones, or as many draws of them."""
    groups = []
    for number in range(max(draws, 1)):
        random = np.random.default_rng(number)
        order = {method: random.permutation(9) if draws else np.arange(9) for method in TURNS}
        groups.append([said[method][row] for method, n in TURNS.items() for row in order[method][:n]])
    return groups


def measure(of: Collection, groups: Sequence[Sequence[Training]], embedded: np.ndarray) -> Row:
    """Both ways to place the images, and to say how likely they are right, in the mean over the groups."""
    judge, found = Judge.make(of), []
    for group in groups:
        together = vote_consensus(group, judge.n_known, of.k)
        weighed = pool_with_lda(together, embedded, of.table.target, of.k)
        found.append(
            {
                "votes": trust(judge, together, embedded, pooled=False),
                "pooled": trust(judge, together, embedded, pooled=True),
                "weighed": trust(judge, weighed, embedded, pooled=True),
            }
        )
    means = {
        way: {key: round(float(np.mean([one[way][key] for one in found])), 4) for key in found[0][way]}
        for way in found[0]
    }
    return {"images": len(of.table), "classes": len(set(judge.y)), "k": of.k, **means}


def trust(judge: Judge, one: Consensus, embedded: np.ndarray, *, pooled: bool) -> dict[str, float]:
    """All, how far the probabilities are off, the share of the mistakes that the doubtful images hold, and the mistakes
    that are left among the others, as a share of all."""
    target, free = judge.of.table.target, judge.free
    placed = np.where(target >= 0, target, one.category)
    votes = VoteShares.of(one, judge.of.k) if pooled else None
    probability = calibrate(embedded, placed, target, judge.of.k, votes=votes).probability[free]
    wrong = ~judge.right(placed)[free]
    listed = np.zeros(len(wrong), dtype=bool)
    listed[np.argsort(probability, kind="stable")[: int(LISTED * len(free))]] = True
    return {
        "all": round(judge.score(placed), 2),
        "error": round(calibration_error(probability, ~wrong), 4),
        "held": round(float(wrong[listed].sum() / max(wrong.sum(), 1)), 4),
        "left": round(float((wrong & ~listed).mean()), 4),
    }


def divide(
    of: Collection, said: dict[str, list[Training]], embedded: np.ndarray, draws: int
) -> dict[str, list[list[float]]]:
    """All of each training of RPC, and of the groups of each division: nine of RPC, and nine and fifteen in turn, by
    votes and weighed."""
    judge, target = Judge.make(of), of.table.target
    rpc, uno = said["rpc"], said["uno"]
    found: dict[str, list[list[float]]] = {"one": [[judge.score(one.category) for one in rpc]]}
    for number in range(draws):
        random = np.random.default_rng(number)
        mine, theirs = ([each[row] for row in random.permutation(len(each))] for each in (rpc, uno))
        alone = [
            vote_consensus(mine[start : start + 9], judge.n_known, of.k)
            for start in range(0, len(rpc) - 8, 9)
        ]
        found.setdefault("rpc 9", []).append([judge.score(one.category) for one in alone])
        for n in IN_TURN:
            a, b = (n + 1) // 2, n // 2
            both = [
                vote_consensus(mine[a * g : a * g + a] + theirs[b * g : b * g + b], judge.n_known, of.k)
                for g in range(len(rpc) // a)
            ]
            weighed = [pool_with_lda(one, embedded, target, of.k) for one in both]
            for name, each in ((f"turns {n}", both), (f"weighed {n}", weighed)):
                found.setdefault(name, []).append([judge.score(one.category) for one in each])
    return {name: np.round(values, 2).tolist() for name, values in found.items()}


def table(rows: dict[str, Row]) -> str:
    """Means of those that chose, and of those that did not, as Markdown."""
    lines = [
        "| | collections | All by votes | weighed | weighed minus votes "
        "| error | now | mistakes held | now | left | now |",
        "|---|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for title, names in kinds(rows).items():
        way = {
            (way, key): [rows[name][way][key] for name in names]
            for way in ("votes", "weighed")
            for key in ("all", "error", "held", "left")
        }
        pairs = np.subtract(way["weighed", "all"], way["votes", "all"])
        cells = [f"{np.mean(way['votes', 'all']):.1f}", f"{np.mean(way['weighed', 'all']):.1f}"]
        cells.append(in_words(pairs.tolist()))
        for key, form in (("error", ".3f"), ("held", ".0%"), ("left", ".1%")):
            cells += [format(np.mean(way[one, key]), form) for one in ("votes", "weighed")]
        lines.append(f"| {title} | {len(names)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def kinds(rows: dict[str, Row]) -> dict[str, list[str]]:
    """Titles of the lines of the table, and the collections of each."""
    told = [name for name in rows if rows[name]["told"]]
    chose = [name for name in rows if name not in told and CHOSE.fullmatch(name)]
    others = [name for name in rows if name not in (*told, *chose)]
    once, often = ([name for name in others if bool(rows[name]["draws"]) == drawn] for drawn in (False, True))
    found = {
        "chose the way": chose,
        "ten others": once,
        "twelve, K given": told,
        "sixteen, six draws each": often,
    }
    return {title: names for title, names in found.items() if len(names) > 1}


def deviations(rows: dict[str, Row]) -> str:
    """All over the divisions: the mean, and the deviation as the root of the mean variance, as Markdown."""
    divided = [row["divisions"] for row in rows.values() if "divisions" in row]
    if not divided:
        return ""
    lines = ["| | All | deviation |", "|---|---:|---:|"]
    for name, title in {
        "one": "one training of RPC",
        "rpc 9": "nine of RPC",
        "turns 9": "nine in turn",
        "weighed 9": "nine in turn, weighed",
        "turns 15": "fifteen in turn",
        "weighed 15": "fifteen in turn, weighed",
    }.items():
        each = [values for one in divided for values in one[name]]
        spread = np.sqrt(np.mean([np.var(values, ddof=1) for values in each]))
        lines.append(f"| {title} | {np.mean([np.mean(values) for values in each]):.2f} | {spread:.2f} |")
    return "\n".join(lines)


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = script_parser(__doc__, roots=True, work="runs/folders", out=RECORD)
    parser.add_argument("collection", nargs="*", help="cub4, cifar4, sample0, full, ...")
    parser.add_argument(
        "--told", action="store_true", help="the trainings were told the number of categories"
    )
    parser.add_argument(
        "--draws", type=int, default=0, help="of nine, at random (default: the first nine alone)"
    )
    parser.add_argument("--divisions", type=int, default=0, help="into groups, at random (default: none)")
    parser.add_argument(
        "--table", action="store_true", help="print the table of the record, and nothing else"
    )
    given = parser.parse_args(words)
    rows: dict[str, Row] = read_rows(given.out, "votes.py")
    roots = roots_of(given)
    made = run_facts("experiments/votes.py", words)
    for word in () if given.table else given.collection:
        of, (said, k) = find_collection(word, roots, given.work), voices(given.work, word)
        of = replace(of, k=k)
        embedded = embed(of, load_backbone(BackboneConfig("embedded")), "cpu", given.work)
        groups = draw(said, given.draws)
        how = {"told": given.told, "draws": given.draws, "made": made}
        rows[word] = measure(of, groups, embedded) | how
        if given.divisions:
            rows[word]["divisions"] = divide(of, said, embedded, given.divisions)
        print(word, rows[word]["votes"], rows[word]["weighed"], flush=True)
        write_record(given.out, {"rows": rows})
    print("\n\n".join(part for part in (table(rows), deviations(rows)) if part))
    return 0


if __name__ == "__main__":
    sys.exit(main())
