"""Losses and methods keep static shapes and never look at a tensor's value, so that a step can be captured.

Two checks: the source holds no boolean indexing or value-dependent call, and every loss runs forward and
backward on tensors that have shapes but no values.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import holotype
from holotype.losses import (
    affinity,
    classification,
    contrastive,
    ops,
    ova,
    pseudo_labels,
    rank_stats,
    relational,
    sinkhorn,
)

ROOMS = (affinity, classification, contrastive, ops, ova, pseudo_labels, rank_stats, relational, sinkhorn)
PACKAGE = Path(holotype.__file__).parent
MASK_NAME = re.compile(r"(^|_)(labelled|unlabelled|mask|valid|positive|negative)$")
VALUE_CALLS = {"nonzero", "masked_select", "argwhere", "item", "tolist", "unique", "flatnonzero"}
OUTSIDE_THE_STEP = {"finish", "before_epoch", "rows", "rows_with_concepts", "concept_order", "concept_rows"}
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
    # concepts are found between epochs, on the host
    files = [file for file in sorted((PACKAGE / room).glob("**/*.py")) if file.name != "_infomap.py"]
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


def weighed(constant: Tensor) -> Tensor:
    """A number with a gradient, of a result that takes none."""
    return (floats(1) * constant).sum()


CALLS: dict[str, Callable[[], Tensor]] = {
    "masked_mean": lambda: ops.masked_mean(floats(2, B), mask()),
    "inner": lambda: ops.inner(floats(B, D), floats(B, D)).sum(),
    "exact_inner": lambda: ops.exact_inner(floats(B, D), floats(B, D)).sum(),
    "l2_normalize": lambda: ops.l2_normalize(floats(B, D)).sum(),
    "at_least_float32": lambda: ops.at_least_float32(floats(B, D)).sum(),
    "info_nce": lambda: contrastive.info_nce(floats(2, B, D)),
    "sup_con": lambda: contrastive.sup_con(floats(2, B, D), indices(), mask()),
    "info_nce with a teacher": lambda: contrastive.info_nce(floats(2, B, D), teacher=floats(2, B, D)),
    "sup_con with a teacher": lambda: contrastive.sup_con(
        floats(2, B, D), indices(), mask(), teacher=floats(2, B, D)
    ),
    "supervised_cross_entropy": lambda: classification.supervised_cross_entropy(
        floats(2, B, K), indices(), mask()
    ),
    "self_distillation": lambda: classification.self_distillation(floats(2, B, K), torch.rand(())),
    "mean_entropy_deficit": lambda: classification.mean_entropy_deficit(floats(2, B, K)),
    "prior_mismatch": lambda: classification.prior_mismatch(floats(2, B, K), floats(K).softmax(-1)),
    "tempered": lambda: classification.tempered(floats(K).softmax(-1), 0.5)[0],
    "ova_hard_negative": lambda: ova.ova_hard_negative(floats(2, B, K).sigmoid(), indices(), mask()),
    "ova_entropy": lambda: ova.ova_entropy(floats(2, B, K).sigmoid(), mask()),
    "ova_consistency": lambda: ova.ova_consistency(floats(2, B, K).sigmoid(), mask()),
    "detector_loss": lambda: ova.detector_loss(floats(2, B, K).sigmoid(), indices(), mask()),
    "known_score": lambda: ova.known_score(floats(2, B, K)).sum(),
    "certainty": lambda: ova.certainty(floats(2, B)).sum(),
    "debiased_loss": lambda: classification.debiased_loss(
        floats(2, B, K), floats(2, B, K), floats(2, B), indices(), mask(), torch.rand(())
    ),
    "circular_fusion": lambda: relational.circular_fusion(floats(B, D), floats(B)).sum(),
    "behaviour_alignment": lambda: relational.behaviour_alignment(
        floats(B, D), floats(B, M, D), floats(B, M), mask()
    ),
    "signature": lambda: relational.signature(floats(B, D), floats(K, D)).sum(),
    "relational_consistency": lambda: relational.relational_consistency(
        floats(B, K), floats(B, D), floats(B), indices(), mask()
    ),
    "pair_weights": lambda: (
        floats(B, B) * relational.pair_weights(floats(B, D), floats(B), indices(), mask())
    ).sum(),
    "concept_nce": lambda: contrastive.concept_nce(
        floats(B, D), indices() - 1, floats(K, D), torch.tensor(K)
    ),
    "update_concept_memory": lambda: (
        floats(K, D) * contrastive.update_concept_memory(floats(K, D), indices() - 1, floats(3, B, D))
    ).sum(),
    "same_top_features": lambda: (floats(B, B) * rank_stats.same_top_features(floats(B, D))).sum(),
    "true_pairs": lambda: (
        floats(B, B) * rank_stats.true_pairs(mask(B)[:, None] & mask(B), indices(), mask())
    ).sum(),
    "pair_cross_entropy": lambda: rank_stats.pair_cross_entropy(floats(2, B, K), mask()[:, None] & mask()),
    "prediction_mse": lambda: rank_stats.prediction_mse(floats(2, B, K)),
    "sinkhorn": lambda: (floats(2, B, K) * sinkhorn.sinkhorn(floats(2, B, K), mask(), torch.rand(K))).sum(),
    "swapped_prediction": lambda: sinkhorn.swapped_prediction(floats(2, M, B, K), floats(2, M, B, K)).sum(),
    "adaptive_targets": lambda: (
        floats(2, B, K) * pseudo_labels.adaptive_targets(floats(2, B, K), torch.rand(()))[0]
    ).sum(),
    "cross_view_targets": lambda: pseudo_labels.cross_view_targets(floats(2, B, K), floats(2, B, K)),
    "prototype_separation": lambda: pseudo_labels.prototype_separation(floats(K, D)),
    "discovery_loss_as_printed": lambda: relational.discovery_loss_as_printed(
        floats(B, K), floats(B, D), floats(B)
    ),
    "neighbours": lambda: weighed(affinity.neighbours(floats(B, D), mask(), 2)),
    "consensus": lambda: weighed(affinity.consensus(floats(B, B))),
    "diffuse": lambda: weighed(affinity.diffuse(floats(B, B), mask(), True)),
    "threshold": lambda: weighed(affinity.threshold(floats(B, B), 0.5)),
    "affinity_graph": lambda: weighed(affinity.affinity_graph(floats(B, D), floats(M, D), mask(M), 2, 0.5)),
    "draw_negatives": lambda: weighed(affinity.draw_negatives(masks(), mask(M), torch.rand(B, M), 2)),
    "drop_weak_edges": lambda: weighed(affinity.drop_weak_edges(masks(), masks(), indices(), indices(M))[0]),
    "labelled_pairs": lambda: weighed(affinity.labelled_pairs(indices(), indices(M))),
    "affinity_contrast": lambda: affinity.affinity_contrast(
        floats(B, D), floats(B, D), floats(M, D), masks(), masks()
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_losses_need_no_values(name) -> None:
    with FakeTensorMode():  # raises where a shape or a branch depends on a value
        CALLS[name]().backward()


def test_every_loss_is_tried() -> None:
    public = {
        name
        for room in ROOMS
        for name, f in inspect.getmembers(room, inspect.isfunction)
        if f.__module__ == room.__name__ and not name.startswith("_")
    }
    assert public == {name.split()[0] for name in CALLS}
