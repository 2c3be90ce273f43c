"""Compositions: one name each, refused where they make no sense; a wrapper at rest leaves its method as it is."""

import dataclasses

import pytest
import torch

from holotype.config.parse import flatten
from holotype.errors import InputError
from holotype.methods import METHODS, WRAPPERS, Batch, Method, Task, Wrapper, find_method
from holotype.runs.experiment import resolve
from holotype.runs.identity import identity_outline
from holotype.runs.method_info import method_info

TASK = Task(n_known=3, k=6, dim=16, n_images=120, n_labelled=30, epochs=10)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("eagc", "stands in front of a method; write eagc.rpc"),
        ("rpc+eagc", "must end with its one method"),
        ("eagc+bia", "must end with its one method"),
        ("simgcd+rpc", r"it has 2 \(simgcd and rpc\)"),
        ("bia+eagc+rpc", "is called eagc.bia.rpc"),
        ("eagc+eagc+rpc", "twice"),
        ("eagc+kmeans", "makes no sense.*leave out eagc"),
        ("bia+sptnet", "makes no sense.*leave out bia"),
        ("bia+dccl", "images that the loop draws"),
        ("eagc+rcp", r"no method 'rcp' \(did you mean rpc\?\)"),
    ],
)
def test_a_name_that_makes_no_sense_is_refused(name, says):
    with pytest.raises(InputError, match=says):
        find_method(name)


@pytest.mark.parametrize(
    "name", [name for name in METHODS if name not in ("kmeans", "promptcal", "dccl", "sptnet")]
)
def test_it_is_a_method_with_the_settings_presets_and_recipes_of_both(name):
    kind, plain = find_method(f"eagc+bia+{name}"), METHODS[name]
    assert kind is find_method(f"eagc+bia+{name}")
    assert kind.parts == (WRAPPERS["eagc"], WRAPPERS["bia"], plain)
    assert issubclass(kind, plain)
    assert kind.presets == plain.presets
    assert vars(kind)["recipes"] == vars(plain).get("recipes", {})
    assert kind.revision == plain.revision + 2
    settings = flatten(dataclasses.asdict(kind.Config()))
    assert settings.items() >= flatten(dataclasses.asdict(plain.Config())).items()
    assert settings.items() >= {"eagc.pull": 0.7, "bia.weight": 0.1}.items()
    assert method_info(f"eagc+bia+{name}").card.title == f"EAGC + BIA + {plain.card.title}"


def test_name_and_settings_are_part_of_the_identity():
    told = identity_outline(resolve("eagc+rpc", "cub", overrides={"method.eagc.pull": "0.5"}))
    assert told["method.name"] == "eagc+rpc"
    assert told["method.settings.eagc.pull"] == 0.5
    assert told["method.settings.lambda_1"] == 0.5
    assert told["method.revision"] == METHODS["rpc"].revision + 1
    memax = resolve("bia+simgcd", "cifar100").method.memax_weight
    assert memax == resolve("simgcd", "cifar100").method.memax_weight == 4.0


def test_a_wrapper_of_ones_own_stands_behind_ours(tmp_path, monkeypatch):
    own = "from dataclasses import dataclass\nfrom holotype.methods import Wrapper\n@dataclass\nclass C:\n"
    (tmp_path / "wrapper_of_ones_own.py").write_text(
        own + "    x: int = 1\nclass Mine(Wrapper):\n    Config = C\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    kind = find_method("eagc+wrapper_of_ones_own:Mine+rpc")
    assert kind.Config().mine.x == 1
    assert kind.code_digest == kind.parts[1].code_digest != ""
    assert kind.card is None
    with pytest.raises(InputError, match="is called eagc"):
        find_method("wrapper_of_ones_own:Mine+eagc+rpc")


def batch_for(method: Method, features: torch.Tensor) -> Batch:
    g = torch.Generator().manual_seed(3)
    n = features.shape[1]
    label = torch.randint(3, (n,), generator=g)
    draws = method.draws(method.stages()[-1], n)
    random = {name: torch.rand(shape, generator=g) for name, shape in draws.items()}
    return Batch(features, label, torch.arange(n) % 2 == 0, torch.arange(n), random)


def gradients(name: str, **at_rest) -> tuple[dict[str, torch.Tensor], torch.Tensor, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    kind = find_method(name)
    config = kind.Config()
    for setting, value in at_rest.items():
        group, _, field = setting.partition("_")
        setattr(getattr(config, group), field, value)
    method = kind(config, TASK).double()
    stage = method.stages()[-1]
    f = torch.randn(
        stage.views.weak + stage.views.strong, 12, 16, generator=torch.Generator().manual_seed(2)
    ).double()
    f.requires_grad_()
    seen = torch.stack([f, f.detach() + 1], 2) if "eagc" in name else f
    now = {key: torch.tensor(0.5) for key in method.schedule(stage, _half())}
    terms = method.loss(batch_for(method, seen), now)
    torch.stack([*terms.values()]).sum().backward()
    return terms, f.grad, dict(method.named_parameters())


def _half():
    from holotype.methods import Progress

    return Progress(5, 10)


@pytest.mark.parametrize("method", ["simgcd", "debgcd", "rpc"])
@pytest.mark.parametrize(
    "front", [("bia", {"bia_weight": 0.0}), ("eagc", {"eagc_pull": 0.0, "eagc_project": 0.0})]
)
def test_at_rest_it_is_the_method_to_the_bit_and_a_seed_gives_the_same_first_weights(method, front):
    wrapper, at_rest = front
    terms, gradient, first = gradients(f"{wrapper}+{method}", **at_rest)
    plain_terms, plain_gradient, plain_first = gradients(method)
    assert all(torch.equal(first[name], value) for name, value in plain_first.items())
    assert all(torch.equal(terms[name], value) for name, value in plain_terms.items())
    assert torch.equal(gradient, plain_gradient)


def test_wrappers_are_no_methods_by_themselves():
    assert all(issubclass(kind, Wrapper) for kind in WRAPPERS.values())
    assert not METHODS.keys() & WRAPPERS.keys()


def test_bia_adds_the_singular_values_of_unlabelled_rows():
    terms, _, _ = gradients("bia+simgcd", bia_weight=0.3)
    f = torch.randn(2, 12, 16, generator=torch.Generator().manual_seed(2)).double()
    rows = torch.nn.functional.normalize(torch.cat([f[0, 1::2], f[1, 1::2]]), dim=-1)
    assert float(terms["bia"]) == pytest.approx(-0.3 * float(torch.linalg.svdvals(rows).sum()) / 12, rel=1e-6)
