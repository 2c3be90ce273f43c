"""RPC's presets, switches and the algebra of its terms."""

import pytest
import torch
import torch.nn.functional as F
from experiments.rpc_variants import Coupled, SampleAnchors

from experiments import rpc_variants
from holotype.methods import Batch, Images, Progress, Task
from holotype.methods.debgcd import DebGCD, DebGCDConfig, confidence_of_lead
from holotype.methods.rpc import LEAD, RPC, DebiasConfig, RPCConfig, debiasing
from holotype.models.heads import DetectorOVA
from holotype.runs.experiment import default_experiment

TASK = Task(n_known=5, k=9, dim=16, n_images=100, n_labelled=25)


def make(kind=RPC, **settings):
    config = RPCConfig()
    for key, value in settings.items():
        *parents, last = key.split("__")
        target = config
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, last, value)
    torch.manual_seed(0)
    return kind(config, TASK).double()


def make_batch(method, n=32, views=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    labelled = torch.rand(n, generator=g) < 0.5
    shapes = method.draws(method.stages()[-1], n)
    return Batch(
        features=torch.randn(views, n, 16, generator=g, dtype=torch.float64).requires_grad_(),
        label=torch.randint(0, 5, (n,), generator=g) * labelled,
        labelled=labelled,
        image=torch.arange(n),
        random={k: torch.rand(s, generator=g, dtype=torch.float64) for k, s in shapes.items()},
    )


def clock(method, epoch=40):
    stage = method.stages()[-1]
    values = {"epoch": float(epoch), "progress": 0.2, **method.schedule(stage, Progress(epoch, 200))}
    return {k: torch.tensor(v, dtype=torch.float64) for k, v in values.items()}


def begin(method, seed=3):
    g = torch.Generator().manual_seed(seed)
    features = torch.randn(100, 16, generator=g, dtype=torch.float64)
    label = torch.where(torch.arange(100) < 25, torch.arange(100) % 5, -1)
    images = Images(torch.arange(100), label, 100, torch.Generator(), lambda: features)
    method.before_epoch(method.stages()[-1], 0, images)
    return method


def test_the_heads_may_read_projections_and_the_alignment_be_over_all_labelled_images():
    plain, printed = begin(make()), begin(make(ova__reads="projections", align_over="labelled"))
    assert printed.ova.mlp[0].in_features == 256
    first = dict(printed.named_parameters())
    assert all(torch.equal(first[n], p) for n, p in plain.named_parameters() if not n.startswith("ova"))
    batch = make_batch(printed)
    over_all = begin(make(align_over="labelled"))
    shares = [m.loss(batch, clock(m))["align"].detach() for m in (over_all, plain)]
    assert 0 < shares[0] < shares[1]
    terms = printed.loss(batch, clock(printed))
    torch.stack([*terms.values()]).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in printed.parameters())
    f = torch.randn(7, 16, dtype=torch.float64)
    score = printed.ova(printed.projector(f)).sigmoid().amax(-1)
    torch.testing.assert_close(printed.predict(f).known_score, score)


def test_the_reading_preset_differs_in_the_three_keys_that_the_docstring_names():
    default, reading = (default_experiment("rpc", "cub", preset).method for preset in ("default", "reading"))
    assert (reading.base, reading.pairing.filter, reading.new.sharpen) == ("simgcd", "none", 1.0)
    reading.base, reading.pairing.filter, reading.new.sharpen = "debgcd", "pseudo_match", default.new.sharpen
    assert reading == default


VARIANTS = ("FeatureSpace", "SampleAnchors", "HardPrototypes")
VARIANTS += ("StrongLabelled", "StrongUnlabelled", "Coupled")
SWITCHES = [
    {},
    {"base": "simgcd"},
    {"debias__waits": False},
    {"debias__threshold": 0.1},
    {"pairing__filter": "none", "pairing__mu": 3},
    {"new__sharpen": 1.0},
    {"ramp_epochs": 0},
    *({"kind": getattr(rpc_variants, name)} for name in VARIANTS),
]


@pytest.mark.parametrize("settings", SWITCHES, ids=str)
def test_every_switch_is_finite_and_changes_something(settings):
    """No dead option: the losses or their gradients differ from the default's."""
    # random pairs, because the filter leaves most groups of a tiny batch with one member
    common = {} if "pairing__filter" in settings else {"pairing__filter": "none"}
    outcomes = []
    for method in (begin(make(**common)), begin(make(**common, **settings))):
        batch = make_batch(method)
        total = torch.zeros((), dtype=torch.float64)
        for epoch in (15, 40, 41):  # on the ramp, after it, and once more: state shows from the next step on
            terms = method.loss(batch, clock(method, epoch))
            assert all(torch.isfinite(t) for t in terms.values())
            total = total + torch.stack(list(terms.values())).sum()
        total.backward()
        assert torch.isfinite(batch.features.grad).all()
        assert min(terms["align"], terms["new"]) > 0
        outcomes.append((total, batch.features.grad, method.rho))
    same = all(torch.equal(mine, theirs) for mine, theirs in zip(*outcomes, strict=True))
    assert same == (settings == {})


@pytest.mark.parametrize("kind", [RPC, SampleAnchors])
def test_a_class_without_a_readable_image_stands_for_nobody_elses(kind):
    """Its prototype is none, instead of the first image of the collection."""
    method = make(kind)
    features = torch.randn(20, 16, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    label = torch.tensor([-1, 0, 1, 3, 4, *[-1] * 15])  # of class 2 none can be read
    images = Images(torch.arange(20), label, 20, torch.Generator(), lambda: features)
    method.before_epoch(method.stages()[-1], 0, images)
    assert not method.prototypes[2].any()
    torch.testing.assert_close(method.prototypes[[0, 1, 3, 4]], F.normalize(features[1:5], dim=-1))


@pytest.mark.parametrize(("k", "weight"), [(10, 0.2), (100, 2.0), (200, 4.0)])
def test_threshold_and_weight_of_pseudo_labels_follow_from_the_number_of_categories(k, weight):
    found = debiasing(RPCConfig(), k)
    assert (found.threshold, found.adl) == (confidence_of_lead(LEAD, k), pytest.approx(weight))
    fixed = debiasing(RPCConfig(debias=DebiasConfig(adl=1.5, threshold=0.3)), k)
    assert (fixed.threshold, fixed.adl) == (0.3, 1.5)


def test_filtered_partners_carry_the_anchors_pseudo_label():
    method = begin(make())
    batch = make_batch(method)
    q = method.classifier(batch.features[:2])
    partner, weight = method.groups(q, torch.rand(32).double(), batch)
    pseudo = q.mean(0).argmax(-1)
    kept = weight > 0
    assert kept.any()
    assert (pseudo[partner][kept] == batch.label[:, None].expand_as(partner)[kept]).all()
    assert not batch.labelled[partner][kept].any()


def test_rho_starts_at_the_balanced_prior_is_held_and_then_follows_the_scores():
    method = begin(make())
    prior = (100 * 5 / 9 - 25) / 75
    assert float(method.rho) == pytest.approx(prior)
    batch = make_batch(method)
    method.loss(batch, clock(method, epoch=9))
    assert float(method.rho) == pytest.approx(prior)
    method.loss(batch, clock(method, epoch=10))
    p_in = method.ova(batch.features[:2]).sigmoid()
    mean = p_in.detach().amax(-1).mean(0)[~batch.labelled].mean()
    assert float(method.rho) == pytest.approx(0.99 * prior + 0.01 * float(mean))


def test_without_its_own_terms_rpc_is_debgcd_weight_for_weight():
    """The same first weights and the same loss: what RPC is compared with differs in RPC's terms and heads alone."""

    class DebGCDHeads(Coupled):
        ova_head = DetectorOVA

    torch.manual_seed(5)
    debgcd = DebGCD(DebGCDConfig(sdl=0.005), TASK).double()
    debias = DebiasConfig(threshold=0.85, adl=1.0, waits=False)
    torch.manual_seed(5)
    rpc = begin(DebGCDHeads(RPCConfig(base="debgcd", lambda_1=0, lambda_2=0, debias=debias), TASK).double())
    for name, weight in debgcd.named_parameters():
        assert torch.equal(weight, rpc.get_parameter(name))
    batch = make_batch(rpc)
    theirs, ours = (method.loss(batch, clock(rpc)) for method in (debgcd, rpc))
    assert all(ours[name].item() == term.item() for name, term in theirs.items())
    assert ours["align"] == ours["new"] == 0
