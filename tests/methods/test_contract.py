"""What every method in METHODS owes: no order of the batch, predictions that are well formed, round trips."""

import pytest
import torch

from holotype.data.samplers import keyed_generator
from holotype.methods import METHODS, Batch, Images, Method, Progress, Task

TASK = Task(n_known=3, k=6, dim=16, n_images=120, n_labelled=30, epochs=10)
SMALL = {key: {"proj_out": 64, "n_init": 3} for key in ("gcd", "promptcal", "dccl", "selex")}
"""Settings that only cost time here."""


def build(name: str, task: Task = TASK) -> Method:
    torch.manual_seed(0)
    return METHODS[name](METHODS[name].Config(**SMALL.get(name, {})), task)


def trains_on_tokens(method: Method) -> bool:
    """What looks at images is trained as a whole, in tests/training."""
    stages = method.stages()
    return bool(stages) and all(stage.needs == "tokens" for stage in stages)


TRAINED = [name for name in METHODS if trains_on_tokens(build(name))]
ORDERLESS = [name for name in TRAINED if METHODS[name].rows is Method.rows]
"""A method that draws its own rows may give their places a meaning."""


def clock(method: Method, epoch: int = 5) -> dict[str, torch.Tensor]:
    stage = method.stages()[-1]
    values = {"epoch": float(epoch), "progress": epoch / 10, **method.schedule(stage, Progress(epoch, 10))}
    return {name: torch.tensor(value) for name, value in values.items()}


class Blobs:
    """Six Gaussian categories of features, three of them known; a linear map stands in for the encoder."""

    def __init__(self) -> None:
        g = torch.Generator().manual_seed(1)
        self.centres = 2.0 * torch.randn(6, 16, generator=g)
        self.truth = torch.arange(120) % 6
        self.x = self.centres[self.truth] + 0.7 * torch.randn(120, 16, generator=g)
        # half of the images of the known categories are labelled
        self.labelled = (self.truth < 3) & (torch.arange(120) % 12 < 6)
        self.target = torch.where(self.labelled, self.truth, -1)

    def batch(self, method: Method, encoder: torch.nn.Module, step: int, n: int = 48) -> Batch:
        g = keyed_generator("blobs", step)
        stage = method.stages()[-1]
        method.batch_size, method.steps = n, 60
        own = method.rows(stage, 0, keyed_generator("own rows"))
        rows = torch.randint(120, (n,), generator=g) if own is None else own[step]
        count = stage.views.weak + stage.views.strong
        draws = method.draws(stage, len(rows))
        noise = 0.2 * torch.randn(count, len(rows), 16, generator=g)
        return Batch(
            features=encoder(self.x[rows] + noise),
            label=self.target[rows].clamp_min(0),
            labelled=self.labelled[rows],
            image=rows,
            random={k: torch.rand(s, generator=g) for k, s in draws.items()},
        )

    def images(self) -> Images:
        return Images(torch.arange(120), self.target, 120, keyed_generator("finish"), lambda: self.x)


def start(method: Method, blobs: Blobs) -> None:
    method.before_epoch(method.stages()[-1], 0, blobs.images())


@pytest.mark.parametrize("name", ORDERLESS)
def test_the_loss_does_not_depend_on_the_order_of_the_batch(name):
    method, blobs = build(name).double(), Blobs()
    start(method, blobs)
    batch = blobs.batch(method, torch.nn.Identity(), 0)
    f, random = batch.features.double(), {key: value.double() for key, value in batch.random.items()}
    state = {key: value.clone() for key, value in method.state_dict().items()}
    found = []
    for order in (torch.arange(48), torch.randperm(48, generator=torch.Generator().manual_seed(2))):
        method.load_state_dict(state)
        drawn = {key: value[order][:, order] for key, value in random.items()}
        rows = (batch.label[order], batch.labelled[order], batch.image[order])
        found.append(method.loss(Batch(f[:, order], *rows, drawn), clock(method)))
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_predictions_are_well_formed_deterministic_and_survive_a_round_trip(name):
    """Nothing in a prediction may depend on the neighbours."""
    method, blobs, twin = build(name).eval(), Blobs(), build(name).eval()
    with torch.no_grad():
        method.finish(blobs.images())
        placed = method.predict(blobs.x)
        twin.load_state_dict(method.state_dict())
        again = twin.predict(blobs.x)
        alone = [int(method.predict(blobs.x[i : i + 1]).category) for i in range(8)]
    assert alone == placed.category[:8].tolist()
    assert placed.category.dtype == torch.long
    assert 0 <= placed.category.min() <= placed.category.max() < 6
    assert ((placed.probability > 0) & (placed.probability <= 1 + 1e-6)).all()
    known = placed.known_score
    assert known.isnan().all() or ((known >= 0) & (known <= 1 + 1e-6)).all()
    torch.testing.assert_close(vars(placed), vars(again), equal_nan=True)
