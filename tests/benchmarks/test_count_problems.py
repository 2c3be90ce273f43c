"""Problems for the study of how many categories there are: what is drawn is what is said."""

from __future__ import annotations

import numpy as np
from count_problems import FEWEST, PER_CLASS, TAIL, random_problems, whole

TRUTH = np.repeat([f"c{i:03}" for i in range(40)], 70)


def test_half_of_the_classes_are_known_and_half_of_their_images_labelled() -> None:
    for problem in random_problems("made", TRUTH, range(6)):
        truth = TRUTH[problem.rows]
        assert len(set(truth)) == problem.k >= FEWEST
        assert problem.known == (problem.k + 1) // 2
        for c in range(problem.known):
            (name,) = set(truth[problem.label == c])
            own = truth == name
            assert int((problem.label[own] >= 0).sum()) == (int(own.sum()) + 1) // 2
        assert len(set(problem.rows.tolist())) == len(problem.rows)


def test_every_third_has_a_tail_that_known_and_new_share() -> None:
    problems = list(random_problems("made", TRUTH, range(9)))
    assert [problem.tail for problem in problems] == [False, False, True] * 3
    for problem in problems:
        sizes = np.unique(TRUTH[problem.rows], return_counts=True)[1]
        assert sizes.max() == PER_CLASS
        assert sizes.min() == (PER_CLASS // TAIL if problem.tail else PER_CLASS)


def test_the_same_number_is_the_same_problem() -> None:
    (first,), (again,) = (list(random_problems("made", TRUTH, [5])) for _ in range(2))
    assert np.array_equal(first.rows, again.rows)
    assert np.array_equal(first.label, again.label)


def test_a_whole_data_set_keeps_its_split() -> None:
    label = np.where((TRUTH < "c010") & (np.arange(len(TRUTH)) % 2 == 0), TRUTH, "")
    problem = whole("made", TRUTH, label)
    assert (problem.k, problem.known) == (40, 10)
    assert np.array_equal(problem.label >= 0, label != "")
