"""Places of an object found by what tells the classes apart: slow loops, and planted objects with a decoy."""

import pytest
import torch
from accelerate import Accelerator
from tests.training.test_part_start import CHANNELS, HEAD, IMAGES, SIDE, TAIL, Planted, network
from torch import Tensor

from dprotonet.encoder.part_maps import PartMaps, WithParts
from dprotonet.encoder.regions import Parts
from dprotonet.inference.losses import PrototypeLoss, excess_area
from dprotonet.training.choose_objective import Extra, whole_objective
from dprotonet.training.engine import Engine, EngineSettings
from dprotonet.training.events import EpochDone
from dprotonet.training.foreground import border_of, class_energy, object_likeness
from dprotonet.training.objective import PartAreaObjective, WholeObjective
from dprotonet.training.part_start import sharing_loss, start_parts
from dprotonet.training.phases import LearningRates, Phase, plan
from dprotonet.training.push import Pusher

DECOY = 2  # a thing in the middle of every image that says nothing of the class
CPU = torch.device("cpu")


class WithDecoy(Planted):
    """The halves look otherwise in each class; the decoy lies beside them, away from the border too."""

    def __getitem__(self, key: tuple[int, int]):  # type: ignore[no-untyped-def]
        view = super().__getitem__(key)
        inputs = view.inputs.clone()
        inputs[:, 2:8, 2:9] *= 0.05
        inputs[HEAD, 2:5, 5:9] += 1
        inputs[TAIL, 5:8, 5:9] += 1
        inputs[5 + view.label, 2:8, 5:9] += 0.7
        inputs[DECOY, 2:8, 2:4] += 1
        inputs[DECOY + 1, 2:8, 4] += 1
        return view._replace(inputs=inputs)


def maps_and_labels() -> tuple[Tensor, Tensor]:
    data = WithDecoy()
    return torch.stack([data[index, 0].inputs for index in range(IMAGES)]).movedim(1, -1), torch.tensor(
        data.labels
    )


def test_energy_is_what_the_discriminant_says_of_each_place() -> None:
    torch.manual_seed(0)
    maps, labels = torch.randn(9, 3, 4, 5), torch.tensor([0, 1, 2] * 3)
    found = class_energy(maps, labels)
    pooled = maps.double().flatten(1, 2).mean(1)
    means = torch.stack([pooled[labels == label].mean(0) for label in range(3)])
    within = torch.zeros(5, 5, dtype=torch.float64)
    for vector, label in zip(pooled, labels, strict=True):
        gap = vector - means[label]
        within += torch.outer(gap, gap) / len(pooled)
    mixed = 0.5 * within + 0.5 * within.diagonal().mean() * torch.eye(5, dtype=torch.float64)
    centre = means.mean(0)
    for image in range(9):
        apart = torch.linalg.inv(mixed) @ (means[labels[image]] - centre)
        for row in range(3):
            for column in range(4):
                expected = (maps[image, row, column].double() - centre) @ apart
                assert float(found[image, row, column]) == pytest.approx(float(expected), rel=1e-3, abs=1e-4)


def test_the_mean_energy_is_that_of_the_averaged_features() -> None:
    torch.manual_seed(1)
    maps, labels = torch.randn(8, 3, 3, 4), torch.tensor([0, 1] * 4)
    averaged = maps.mean(dim=(1, 2), keepdim=True)
    torch.testing.assert_close(
        class_energy(maps, labels).mean(dim=(1, 2)), class_energy(averaged, labels)[:, 0, 0]
    )


def test_likeness_is_fishers_direction_between_examples() -> None:
    torch.manual_seed(2)
    vectors, energy = torch.randn(3, 7, 7, 4), torch.randn(3, 7, 7)
    found = object_likeness(vectors, energy)
    border = border_of(7, 7)
    front, behind = [], []
    for image in range(3):
        even = torch.zeros(7, 7)
        for row in range(7):
            for column in range(7):
                near = energy[image, max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]
                even[row, column] = near.mean()
        order = even.flatten().sort().values
        for row in range(7):
            for column in range(7):
                value = vectors[image, row, column].double()
                if even[row, column] >= order.quantile(0.8) and not border[row, column]:
                    front.append(value)
                if even[row, column] <= order.quantile(0.5) and border[row, column]:
                    behind.append(value)
    one, other = torch.stack(front), torch.stack(behind)
    spread = sum(((x - x.mean(0)).T @ (x - x.mean(0)) / len(x) for x in (one, other)), torch.zeros(4, 4)) / 2
    mixed = 0.9 * spread + 0.1 * spread.diagonal().mean() * torch.eye(4)
    direction = torch.linalg.inv(mixed) @ (one.mean(0) - other.mean(0))
    torch.testing.assert_close(found, (vectors.double() @ direction).float(), rtol=1e-4, atol=1e-4)


def test_maps_without_a_border_have_examples_too() -> None:
    torch.manual_seed(3)
    found = object_likeness(torch.randn(6, 2, 2, 3), torch.randn(6, 2, 2))
    assert bool(found.isfinite().all())


@pytest.mark.parametrize("by_energy", [False, True])
def test_only_energy_tells_an_object_from_a_decoy(by_energy: bool) -> None:
    started = network()
    shaping = started.encoder.shaping
    assert isinstance(shaping, WithParts)
    start_parts(started, shaping.part_maps, WithDecoy(), seed=0, by_energy=by_energy, device=CPU)
    maps, _ = maps_and_labels()
    with torch.no_grad():
        shares = shaping.part_maps(maps.movedim(-1, 1)).sum(dim=1)
    on, decoy = float(shares[:, 2:8, 5:9].mean()), float(shares[:, 2:8, 2:4].mean())
    assert (on > 0.8 and decoy < 0.2) == by_energy


def test_the_same_seed_is_the_same_start_by_energy() -> None:
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        maps = PartMaps(CHANNELS, 2)
        start_parts(network(), maps, WithDecoy(), seed=1, by_energy=True, device=CPU)
        found.append(maps.directions.detach())
        assert maps.directions.grad is None
    assert torch.equal(*found)


def test_sharing_loss_is_three_cross_entropies() -> None:
    torch.manual_seed(4)
    shares = torch.rand(6, 4, dtype=torch.float64).softmax(dim=1)[:, :3]
    owner = torch.tensor([0, 2, 1, 1])
    expected = 0.0
    for row in range(4):
        together = shares[row].sum()
        expected -= (together.log() + (shares[row, owner[row]] / together).log()).item() / 4
    for row in (4, 5):
        expected -= (1 - shares[row].sum()).log().item() / 2
    assert float(sharing_loss(shares, owner)) == pytest.approx(expected)


def test_only_area_beyond_what_is_allowed_costs() -> None:
    torch.manual_seed(5)
    maps = torch.rand(3, 2, 4, 5, dtype=torch.float64)
    expected = 0.0
    for image in range(3):
        area = (
            sum(float(maps[image, part, y, x]) for part in range(2) for y in range(4) for x in range(5)) / 20
        )
        expected += max(area - 0.95, 0) / 3
    assert float(excess_area(maps, 0.95)) == pytest.approx(expected)
    assert float(excess_area(maps, 3.0)) == 0


@pytest.mark.parametrize("whole", [False, True])
def test_the_objective_counts_parts_and_not_the_whole_image(whole: bool) -> None:
    found = network(3 if whole else 2).eval()
    if whole:
        maps = PartMaps(CHANNELS, 2)
        found.encoder.shaping = WithParts(maps, whole=True)
    shaping = found.encoder.shaping
    assert isinstance(shaping, WithParts)
    assert isinstance(found.encoder.regions, Parts)
    inputs, labels = torch.randn(4, CHANNELS, SIDE, SIDE), torch.tensor([0, 1, 0, 1])
    free = WholeObjective(found, PrototypeLoss())(inputs, labels).terms.total
    step = PartAreaObjective(found, PrototypeLoss(), most=0.01)(inputs, labels)
    small = step.terms.total
    area = shaping.part_maps(inputs).sum(dim=1).mean(dim=(1, 2))
    torch.testing.assert_close(small - free, 2 * (area - 0.01).relu().mean(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(step.named["area"], (area - 0.01).relu().mean())
    assert torch.equal(small, free + 2.0 * step.named["area"])  # to the last bit


def test_the_area_is_a_term_of_the_log_where_it_is_learned() -> None:
    extra = Extra(part_area=0.05)
    accelerator, views = Accelerator(cpu=True), Planted()
    settings = EngineSettings(batch=5, accumulate=2)
    runner = Engine(
        network(2), views, views, accelerator, Pusher(accelerator), extra=extra, settings=settings
    )
    stages = plan(LearningRates(part_maps=1e-3), epochs=1, warm=0, push_every=1, last_layer=1)
    joint, last = (event.terms for event in runner.run(stages) if isinstance(event, EpochDone))
    assert joint["area"] > 0
    parts = joint["cross_entropy"] + 0.8 * joint["cluster"] - 0.08 * joint["separation"]
    assert joint["loss"] == pytest.approx(parts + 1e-4 * joint["foreign"] + 2 * joint["area"], rel=1e-5)
    assert "area" not in last


def test_an_area_of_the_whole_image_costs_nothing() -> None:
    found, phase = network(2), Phase("joint", 1, LearningRates())
    kinds = [whole_objective(found, PrototypeLoss(), Extra(part_area=most), phase) for most in (1.0, 0.5)]
    assert [type(kind) for kind in kinds] == [WholeObjective, PartAreaObjective]
