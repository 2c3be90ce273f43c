"""Losses and methods keep static shapes and never look at a tensor's value, so that a step can be captured.

Two checks: the source holds no boolean indexing or value-dependent call, and every loss runs forward and
backward on tensors that have shapes but no values.
"""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import holotype
from holotype import losses
from holotype.losses import (
    affinity,
    classification,
    contrastive,
    hyperbolic,
    ops,
    ova,
    pseudo_labels,
    rank_stats,
    relational,
    self_expertise,
    sinkhorn,
    subspace,
)

ROOMS = [
    importlib.import_module(f"{losses.__name__}.{room.name}")
    for room in pkgutil.iter_modules(losses.__path__)
]
PACKAGE = Path(holotype.__file__).parent
MASK_NAME = re.compile(r"(^|_)(labelled|unlabelled|mask|valid|positive|negative)$")
VALUE_CALLS = {"nonzero", "masked_select", "argwhere", "item", "tolist", "unique", "flatnonzero"}
OUTSIDE_THE_STEP = {
    *("finish", "_known_first", "before_epoch", "rows"),
    *("rows_with_concepts", "concept_order", "concept_rows"),
}
"""Functions that run once or once an epoch, over all images, and are never captured."""


def is_mask(index: ast.expr) -> bool:
    """Does this look like a boolean index?"""
    match index:
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Invert() | ast.Not()):
            return True
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return bool(MASK_NAME.search(name))
        case ast.Call(func=ast.Attribute(attr="bool" | "logical_not" | "logical_and" | "logical_or")):
            return True
        case ast.Tuple(elts=elements):
            return any(is_mask(element) for element in elements)
    return False


def in_the_step(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name in OUTSIDE_THE_STEP:
            continue
        if isinstance(node, ast.AnnAssign):  # a type may read `Card | None`
            node = ast.Expr(node.value or ast.Constant(None))
        yield node
        yield from in_the_step(node)


def offences(source: str) -> list[str]:
    found = []
    for node in in_the_step(ast.parse(source)):
        boolean_index = isinstance(node, ast.Subscript) and is_mask(node.slice)
        value_call = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and (
                node.func.attr in VALUE_CALLS
                or (node.func.attr == "where" and len(node.args) == 1 and not node.keywords)
            )
        )
        if boolean_index or value_call:
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


@pytest.mark.parametrize("room", ["losses", "methods"])
def test_no_boolean_indexing(room) -> None:
    files = sorted((PACKAGE / room).glob("**/*.py"))
    assert files
    found = {f.name: offences(f.read_text(encoding="utf-8")) for f in files}
    assert not {name: lines for name, lines in found.items() if lines}


# fmt: off
FOUND = (
    "x[mask]", "x[~labelled]", "x[batch.labelled]", "x[:, y > 0]", "x[a & b] = 0", "x[is_valid]", "x[m.bool()]",
    "x.nonzero()", "torch.masked_select(x, m)", "x.sum().item()", "torch.where(x > 0)", "torch.argwhere(x)",
)
LET_PASS = (
    "labelled[:, None]", "x[label]", "x[:, order]", "torch.where(mask, x, 0)", "batch.random['mask']", "x[..., 0]",
    "class M:\n    def finish(self):\n        return x[label < 0]",
)
# fmt: on


def test_the_check_finds_and_lets_pass() -> None:
    assert [line for line in FOUND if not offences(line)] == []
    assert [line for line in LET_PASS if offences(line)] == []


B, K, D, M = 6, 4, 5, 3


def floats(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def indices(n: int = B) -> Tensor:
    return torch.randint(0, K, (n,))


def mask(n: int = B) -> Tensor:
    return torch.rand(n) < 0.5


def masks() -> Tensor:
    return torch.rand(B, M) < 0.5


# fmt: off
CALLS: list[tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = [
    (ops.masked_mean, lambda: (floats(2, B), mask())),
    (ops.inner, lambda: (floats(B, D), floats(B, D))),
    (ops.exact_inner, lambda: (floats(B, D), floats(B, D))),
    (ops.l2_normalize, lambda: (floats(B, D),)),
    (ops.at_least_float32, lambda: (floats(B, D),)),
    (contrastive.info_nce, lambda: (floats(2, B, D),)),
    (contrastive.info_nce, lambda: (floats(2, B, D), {"teacher": floats(2, B, D)})),
    (contrastive.sup_con, lambda: (floats(2, B, D), indices(), mask())),
    (contrastive.sup_con, lambda: (floats(2, B, D), indices(), mask(), {"teacher": floats(2, B, D)})),
    (contrastive.concept_nce, lambda: (floats(B, D), indices() - 1, floats(K, D), torch.tensor(K))),
    (contrastive.update_concept_memory, lambda: (floats(K, D), indices() - 1, floats(3, B, D))),
    (classification.supervised_cross_entropy, lambda: (floats(2, B, K), indices(), mask())),
    (classification.self_distillation, lambda: (floats(2, B, K), torch.rand(()))),
    (classification.mean_entropy_deficit, lambda: (floats(2, B, K),)),
    (classification.mean_prediction, lambda: (floats(2, B, K), 0.1, floats(B).softmax(-1))),

    (classification.debiased_loss,
     lambda: (floats(2, B, K), floats(2, B, K), floats(2, B), indices(), mask(), torch.rand(()))),
    (ova.ova_hard_negative, lambda: (floats(2, B, K).sigmoid(), indices(), mask())),
    (ova.ova_entropy, lambda: (floats(2, B, K).sigmoid(), mask())),
    (ova.ova_consistency, lambda: (floats(2, B, K).sigmoid(), mask())),
    (ova.detector_loss, lambda: (floats(2, B, K).sigmoid(), indices(), mask())),
    (ova.known_score, lambda: (floats(2, B, K),)),
    (ova.certainty, lambda: (floats(2, B),)),
    (relational.circular_fusion, lambda: (floats(B, D), floats(B))),
    (relational.behaviour_alignment, lambda: (floats(B, D), floats(B, M, D), floats(B, M), mask())),
    (relational.signature, lambda: (floats(B, D), floats(K, D))),
    (relational.relational_consistency, lambda: (floats(B, K), floats(B, D), floats(B), indices(), mask())),
    (relational.pair_weights, lambda: (floats(B, D), floats(B), indices(), mask())),
    (relational.discovery_loss_as_printed, lambda: (floats(B, K), floats(B, D), floats(B))),
    (rank_stats.same_top_features, lambda: (floats(B, D),)),
    (rank_stats.true_pairs, lambda: (mask(B)[:, None] & mask(B), indices(), mask())),
    (rank_stats.pair_cross_entropy, lambda: (floats(2, B, K), mask()[:, None] & mask())),
    (rank_stats.prediction_mse, lambda: (floats(2, B, K),)),
    (sinkhorn.sinkhorn, lambda: (floats(2, B, K), mask(), torch.rand(K))),
    (sinkhorn.swapped_prediction, lambda: (floats(2, M, B, K), floats(2, M, B, K))),
    (pseudo_labels.adaptive_targets, lambda: (floats(2, B, K), torch.rand(()))),
    (pseudo_labels.cross_view_targets, lambda: (floats(2, B, K), floats(2, B, K))),
    (pseudo_labels.prototype_separation, lambda: (floats(K, D),)),
    (self_expertise.distances, lambda: (floats(B, D),)),
    (self_expertise.cluster_contrast,
     lambda: (floats(M, B, B).exp(), indices(M * B).view(M, B), mask(M * B).view(M, B))),
    (self_expertise.apartness, lambda: (floats(B, D), torch.rand(M, B))),
    (self_expertise.smoothed_info_nce, lambda: (floats(B, B).exp(), torch.rand(B, B), 0.5)),
    (hyperbolic.clip_norm, lambda: (floats(B, D), 2.0)),
    (hyperbolic.exp_at_centre, lambda: (floats(B, D), 0.1)),
    (hyperbolic.poincare_distance, lambda: (floats(B, D), 0.1)),
    (subspace.conceptor, lambda: (floats(B, D), 2.0)),
    (subspace.subspace_energy, lambda: (floats(2, B, D), floats(D, D))),
    (subspace.squared_drift, lambda: (floats(2, B, D), floats(2, B, D), mask())),
    (subspace.negative_isotropy, lambda: (floats(B, D), mask())),
    (subspace.polar_factor, lambda: (floats(B, D),)),
    (affinity.neighbours, lambda: (floats(B, D), mask(), 2)),
    (affinity.consensus, lambda: (floats(B, B),)),
    (affinity.diffuse, lambda: (floats(B, B), mask(), True)),
    (affinity.threshold, lambda: (floats(B, B), 0.5)),
    (affinity.affinity_graph, lambda: (floats(B, D), floats(M, D), mask(M), 2, 0.5)),
    (affinity.draw_negatives, lambda: (masks(), mask(M), torch.rand(B, M), 2)),
    (affinity.drop_weak_edges, lambda: (masks(), masks(), indices(), indices(M))),
    (affinity.labelled_pairs, lambda: (indices(), indices(M))),
    (affinity.affinity_contrast, lambda: (floats(B, D), floats(B, D), floats(M, D), masks(), masks())),
]
# fmt: on


@pytest.mark.parametrize(("loss", "arguments"), CALLS, ids=[loss.__name__ for loss, _ in CALLS])
def test_losses_need_no_values(loss, arguments) -> None:
    with FakeTensorMode():  # raises where a shape or a branch depends on a value
        given = arguments()
        named = given[-1] if isinstance(given[-1], dict) else {}
        found = loss(*given[: len(given) - bool(named)], **named)
        first = found[0] if isinstance(found, tuple) else found
        (floats(1) * first).sum().backward()


def test_every_loss_is_tried() -> None:
    found = [(room, *one) for room in ROOMS for one in inspect.getmembers(room, inspect.isfunction)]
    public = {name for room, name, f in found if f.__module__ == room.__name__ and name[0] != "_"}
    assert public == {loss.__name__ for loss, _ in CALLS}
