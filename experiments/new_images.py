"""How well are images placed that come after a discovery, and would the second opinion help there?

    python experiments/new_images.py cub40 sample20 --cub DIR/CUB_200_2011
    python experiments/new_images.py --table

Collections: harness.py. A third of the unlabelled images is kept aside; the others are discovered with four trainings,
RPC and UNO+ in turn, 300 steps, the number of categories told. Then those that were kept aside come. A category stands
for the class that it stands for among the images that were there. Ways to place them:

model      by the model that is kept, m
frozen     by the second opinion that has learned the categories of the discovery, p (results/lda.py)
both       where (m + p) / 2 is largest

`one model` and `one both` are the same where the opinion has learned from what that model says by itself, as after a
discovery of one training. `one there` and `one weighed` are the images that are there, by that model and by both, and
`weighed both` are later images if the opinion has learned from the latter. `error` says how far probabilities are off.

What was chosen on cub40 to cub42, cifar40, sample20 and sample21, before the others were looked at: a dozen ways to
join m and p have 64.2 to 66.5 there (model 61.8), the product, the mean and the floors of weighing.py the most. The
mean needs no constant, and is a probability itself.

Rule, written then: over cub43 to cub48, cifar43 to cifar48 and sample23 to sample28,
- if `both` minus `model` has a 95 % interval above 0, it is built into `holotype assign`, `Discoverer`, `holotype
  export`, and into the placing of images that a discovery was not trained on; `frozen` alone, if it is no more than
  half a point below `both`, since it is simpler;
- the same for discoveries of one training if `one both` minus `one model` has an interval above 0;
- a discovery of one training places the images that are there so too, each by a judge that has not learned from it, if
  that (`one weighed`) minus what the model says of them (`one there`) has an interval above 0 (on those that chose 64.0
  and 62.5);
- the probability is taken from the same curve as now if its error is at most 0.02 higher than that of the model.

A rule that came later, when of the eighteen only the figures above had been looked at: the probability of the images
that are there after one training pools the model's word and the opinion, as after several trainings (`one pooled
error`), if its error is no higher in the mean than that of the opinion by itself (`one opinion error`; on those that
chose 0.062 and 0.093, and 0.075 where the model places alone, `one there error`).
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from folders import embed
from harness import (
    RESULTS,
    Collection,
    calibration_error,
    find_collection,
    in_words,
    one_sentence,
    read_rows,
    roots_of,
    run_facts,
    script_parser,
    stand_for,
    write_record,
)
from holotype.clustering.metrics import class_index, clustering_accuracy
from holotype.config.schema import BackboneConfig, DiscoverConfig
from holotype.discovery.pipeline import discover_table
from holotype.models.backbone import load_backbone
from holotype.results.calibration import calibrate, calibration_curve, interpolate
from holotype.results.discovery import read_features
from holotype.results.lda import CrossFitLDA, softmax
from holotype.runs.model_io import load_model
from holotype.runs.predict import class_probabilities

RECORD = RESULTS / "new-images.jsonl#new-images"
STEPS, SEEDS = 300, 4
ASIDE = 0.35
"""Share of the unlabelled images that come later."""
WAYS = ("model", "frozen", "both")
ONE = ("one there", "one weighed", "one model", "one both", "weighed both")
CHOSE = ("cub40", "cub41", "cub42", "cifar40", "sample20", "sample21")
Row = dict[str, Any]


def divide(of: Collection) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the images that are there, and of those that come later."""
    free = np.flatnonzero(~of.table.labelled)
    later = np.sort(np.random.default_rng(1).permutation(free)[: int(ASIDE * len(free))])
    return np.setdiff1d(np.arange(len(of.table)), later), later


@dataclass(frozen=True)
class Case:
    """A collection of which a part comes later, and what a discovery made of the other part."""

    of: Collection
    there: np.ndarray
    later: np.ndarray
    category: np.ndarray
    """(n,) of the images that are there, as the discovery places them."""
    word_there: np.ndarray
    """(n, K) what the model says of them."""
    word: np.ndarray
    """(m, K) what it says of those that come later."""
    embedded: np.ndarray
    """(N, D)."""

    @property
    def target(self) -> np.ndarray:
        """(n,) of the images that are there, -1 = no label."""
        return np.where(self.of.table.labelled, self.of.table.target, -1)[self.there]

    def opinion(self, category: np.ndarray) -> CrossFitLDA:
        """That has learned these categories (n,) of the images that are there."""
        opinion = CrossFitLDA(self.embedded[self.there], category, self.word.shape[1])
        opinion.form(self.target)
        return opinion

    def beside(self, opinion: CrossFitLDA) -> np.ndarray:
        """(n, K) what both say of the images that are there, each judged by those that have not learned from it."""
        both = self.word_there.astype(float)
        for part, scores in opinion.scores(np.arange(len(both))):
            both[part] = (both[part] + softmax(scores / opinion.heat)) / 2
        return both

    def right_there(self, category: np.ndarray) -> np.ndarray:
        """(free,) bool, of the images that are there and have no label."""
        return stand_for(self.stands(category), category[self.free], self.truth[1][self.there][self.free])

    def right(self, category: np.ndarray, placed: np.ndarray) -> np.ndarray:
        """(m,) bool, of later images `placed`, where those that are there lie as `category` (n,) says."""
        return stand_for(self.stands(category), placed, self.truth[1][self.later])

    def stands(self, category: np.ndarray) -> Mapping[int, int]:
        """Category to the class that it stands for, where the images that are there lie so (n,)."""
        n_known, y = self.truth
        return clustering_accuracy(y[self.there][self.free], category[self.free], n_known).assignment

    @property
    def free(self) -> np.ndarray:
        """(n,) bool: images that are there and have no label."""
        return ~self.of.table.labelled[self.there]

    @property
    def truth(self) -> tuple[int, np.ndarray]:
        """How many classes are known, and (N,) the class of each image."""
        assert self.of.table.truth is not None
        n_known, _, y = class_index(self.of.table.known, self.of.table.truth.astype(str))
        return n_known, y


@dataclass(frozen=True)
class Word:
    """What a model says, in the place of votes."""

    word: np.ndarray
    """(n, K)."""

    def shares(self, images: np.ndarray) -> np.ndarray:
        return self.word[images]


def discover(of: Collection, run: Path, embedded: np.ndarray, device: str) -> Case:
    """Train, or read what was trained."""
    there, later = divide(of)
    table = dataclasses.replace(of.table.take(there), truth=None)
    how: dict[str, Any] = {"method": "rpc,uno", "backbone": "embedded"}
    config = DiscoverConfig(k=of.k, steps=STEPS, seeds=SEEDS, device=device, **how)
    found = discover_table(table, config, run, progress=False)
    model = load_model(run, device)
    index = {id: number for number, id in enumerate(model.ids)}
    places = found.images.set_index("path").category_id
    category = np.array([index[places[str(path)]] for path in table.path])
    features = read_features(run, len(table))
    assert features is not None  # a discovery keeps them
    assert list(found.images["path"]) == [str(path) for path in table.path]
    new = model.features([str(path) for path in of.table.path[later]]).features
    words = (class_probabilities(model.method, np.asarray(x, np.float32)) for x in (features, new))
    return Case(of, there, later, category, *words, embedded)


def measure(case: Case) -> Row:
    """The per cent of later images that each way places right, and how far their probabilities are off."""
    alone = np.where(case.target >= 0, case.target, case.word_there.argmax(axis=1))
    both = case.beside(case.opinion(alone)).argmax(axis=1)
    weighed = np.where(case.target >= 0, case.target, both)
    row: Row = {
        "there": case.right_there(case.category).mean(),
        "one there": case.right_there(alone).mean(),
        "one weighed": case.right_there(weighed).mean(),
    }
    for name, category in (("", case.category), ("one ", alone), ("weighed ", weighed)):
        p = case.opinion(category).kept().shares(case.embedded[case.later])
        for way, said in (("model", case.word), ("frozen", p), ("both", (case.word + p) / 2)):
            if name + way in (*WAYS, *ONE):
                row[name + way] = case.right(category, said.argmax(axis=1)).mean()
    row = {key: round(100 * float(value), 2) for key, value in row.items()}
    return (
        row
        | errors_of_one(case, alone, weighed)
        | {f"{way} error": error(case, way) for way in ("model", "both")}
        | {"images": len(case.of.table), "later": len(case.later), "k": case.of.k}
    )


def errors_of_one(case: Case, alone: np.ndarray, weighed: np.ndarray) -> Row:
    """Of the probabilities of the images that are there, after one training."""
    found: Row = {}
    ways = ("there", alone, None), ("opinion", weighed, None), ("pooled", weighed, Word(case.word_there))
    for name, category, votes in ways:
        judged = calibrate(case.embedded[case.there], category, case.target, case.word.shape[1], votes=votes)
        found[f"one {name} error"] = round(
            calibration_error(judged.probability[case.free], case.right_there(category)), 4
        )
    return found


def error(case: Case, way: str) -> float:
    """Of the probabilities of later images, which are read off a curve that images which are there have taught."""
    opinion, said, there = case.opinion(case.category), case.word, case.word_there
    if way == "both":
        said = (said + opinion.kept().shares(case.embedded[case.later])) / 2
        there = case.beside(opinion)
    lie = np.where(case.target >= 0, case.target, there.argmax(axis=1))
    judged = calibrate(case.embedded[case.there], lie, case.target, case.word.shape[1])
    points = calibration_curve(np.where(case.target >= 0, np.nan, there.max(axis=1)), judged.probability)
    right = case.right(case.category, said.argmax(axis=1))
    return round(calibration_error(interpolate(said.max(axis=1), points), right), 4)


def table(rows: dict[str, Row]) -> str:
    """As Markdown: those that chose, then each kind of the others."""
    names, pairs = ("there", *WAYS), (("both", "model"),)
    return _table(rows, names, pairs, ("model", "both"))


def table_of_one(rows: dict[str, Row]) -> str:
    """The same for discoveries of one training."""
    pairs = ("one weighed", "one there"), ("one both", "one model")
    return _table(rows, ONE, pairs, ("one there", "one opinion", "one pooled"))


def _table(
    rows: dict[str, Row], names: Sequence[str], pairs: Sequence[tuple[str, str]], errors: Sequence[str]
) -> str:
    heads = [*names, *(" minus ".join(pair) for pair in pairs), *(f"error of {way}" for way in errors)]
    lines = [
        f"| | n | {' | '.join(heads)} |",
        f"|---|---:|{'---:|' * len(names)}{'---|' * len(pairs)}{'---:|' * len(errors)}",
    ]
    for title, some in kinds(rows).items():
        cells = [f"{np.mean([row[name] for row in some]):.1f}" for name in names]
        cells += [in_words([row[more] - row[less] for row in some]) for more, less in pairs]
        cells += [f"{np.mean([row[f'{way} error'] for row in some]):.3f}" for way in errors]
        lines.append(f"| {title} | {len(some)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def kinds(rows: dict[str, Row]) -> dict[str, list[Row]]:
    """The rows of those that chose, of all others, and of these by where their images come from."""
    others = {name: row for name, row in rows.items() if name not in CHOSE}
    found = {
        "those that chose": [row for name, row in rows.items() if name in CHOSE],
        "all others": list(others.values()),
    }
    for word, title in (("cub", "of CUB"), ("cifar", "of CIFAR"), ("sample", "of the sample")):
        found[title] = [row for name, row in others.items() if name.startswith(word)]
    return {title: some for title, some in found.items() if some}


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = script_parser(__doc__, roots=True, device="cpu", out=RECORD)
    parser.add_argument("collection", nargs="*", help="cub4, cifar4, sample0, ...")
    parser.add_argument(
        "--work", type=Path, default=Path("runs/new-images"), help="folder of features and runs"
    )
    parser.add_argument(
        "--table", action="store_true", help="print the table of the record, and nothing else"
    )
    given = parser.parse_args(words)
    rows: dict[str, Row] = read_rows(given.out, "new_images.py")
    roots = roots_of(given)
    made = run_facts("experiments/new_images.py", words, given.device)
    for word in () if given.table else given.collection:
        of = find_collection(word, roots, given.work)
        embedded = embed(of, load_backbone(BackboneConfig("embedded")), given.device, given.work)
        rows[word] = measure(discover(of, given.work / word, embedded, given.device)) | {"made": made}
        print(word, rows[word], flush=True)
        write_record(given.out, {"rows": rows})
    print(table(rows), table_of_one(rows), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
