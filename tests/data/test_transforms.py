"""Augmentation is pure, really changes images and keeps them natural; normalisation and views are exact."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from dprotonet.data.base import Sample
from dprotonet.data.transforms import Augment, Normalise, View, Views
from dprotonet.errors import UserError

SIDE = 64
KINDS = ("rotation", "shear", "perspective", "distortion")
ALWAYS = {f"{kind}_probability": 1.0 for kind in KINDS}
NEVER = {f"{kind}_probability": 0.0 for kind in KINDS}
OFF = Augment(rotation=0, shear=0, perspective=0, distortion=0, flip=0, **ALWAYS)


def smooth_picture(seed: int = 0) -> Tensor:
    coarse = torch.from_numpy(np.random.default_rng(seed).uniform(0, 255, (1, 3, 6, 6)))
    return torch.nn.functional.interpolate(coarse, size=SIDE, mode="bilinear")[0].to(torch.uint8)


def difference(one: Tensor, other: Tensor) -> float:
    return float((one.int() - other.int()).abs().float().mean())


class Pictures:
    """Three images in memory."""

    classes: Sequence[str] = ("a", "b")
    labels: Sequence[int] = (0, 1, 0)
    fingerprint = "pictures"

    def name(self, index: int) -> str:
        return str(index)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Sample:
        return Sample(smooth_picture(index), self.labels[index], str(index))


def augmented(augment: Augment, count: int) -> Iterator[Tensor]:
    return (augment(smooth_picture(), seed=0, epoch=epoch, index=0) for epoch in range(count))


def test_keeps_shape_and_type_also_when_not_square() -> None:
    image = smooth_picture()[:, :40]
    result = Augment(**ALWAYS)(image, seed=0, epoch=1, index=0)
    assert (result.shape, result.dtype) == (image.shape, torch.uint8)


def test_is_a_pure_function_and_leaves_random_state_alone() -> None:
    image, augment = smooth_picture(), Augment()
    original, torch_state, numpy_state = image.clone(), torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    first = augment(image, seed=3, epoch=2, index=1)
    torch.manual_seed(99)
    torch_state = torch.get_rng_state()
    assert torch.equal(first, augment(image, seed=3, epoch=2, index=1))
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()  # type: ignore[index]
    assert torch.equal(image, original)


def test_result_is_never_the_callers_tensor() -> None:
    image = smooth_picture()
    result = Augment(**NEVER, flip=0)(image, seed=0, epoch=1, index=0)
    assert torch.equal(result, image)
    result.zero_()
    assert image.any()


@pytest.mark.parametrize("changed", ["seed", "epoch", "index"])
def test_each_part_of_the_key_matters(changed: str) -> None:
    image, augment, key = smooth_picture(), Augment(**ALWAYS), {"seed": 1, "epoch": 1, "index": 1}
    assert difference(augment(image, **key), augment(image, **{**key, changed: 2})) > 1


def test_most_images_change_and_none_beyond_recognition() -> None:
    changes = np.array([difference(result, smooth_picture()) for result in augmented(Augment(flip=0), 40)])
    assert (changes > 1).mean() > 0.9
    unrelated = difference(smooth_picture(), smooth_picture(1))
    assert changes.max() < unrelated
    assert changes.std() > 0.5  # weak and strong ones, not one trick


@pytest.mark.parametrize("magnitude", ["rotation", "shear", "perspective", "distortion"])
def test_each_magnitude_alone_moves_the_picture(magnitude: str) -> None:
    only = dataclasses.replace(OFF, **{magnitude: getattr(Augment(), magnitude)})
    assert np.mean([difference(result, smooth_picture()) for result in augmented(only, 10)]) > 1


def test_nothing_drawn_is_the_identity() -> None:
    for result in augmented(OFF, 3):
        assert difference(result, smooth_picture()) < 0.05  # all at size zero: a warp that moves nothing


def test_flip_mirrors_at_its_rate() -> None:
    image = smooth_picture()
    always = dataclasses.replace(OFF, flip=1.0, **NEVER)
    assert torch.equal(always(image, seed=0, epoch=1, index=0), image.flip(-1))
    half = dataclasses.replace(always, flip=0.5)
    assert 20 <= sum(torch.equal(result, image.flip(-1)) for result in augmented(half, 60)) <= 40


def test_rotation_is_a_rotation_by_at_most_its_angle() -> None:
    """A dot at the right edge stays on its circle and within the angle, and goes both ways."""
    image = torch.zeros(3, SIDE, SIDE, dtype=torch.uint8)
    image[:, 31:33, 51:53] = 255  # 20 pixels right of the centre
    angles = []
    for result in augmented_from(dataclasses.replace(OFF, rotation=15.0), image, 20):
        weight = result[0].float()
        positions = torch.arange(SIDE) - (SIDE - 1) / 2
        x, y = (
            (weight.sum(0) * positions).sum() / weight.sum(),
            (weight.sum(1) * positions).sum() / weight.sum(),
        )
        assert float((x**2 + y**2).sqrt()) == pytest.approx(20, abs=0.4)
        angles.append(float(torch.rad2deg(torch.atan2(y, x))))
    assert max(map(abs, angles)) < 16
    assert min(angles) < -5
    assert max(angles) > 5


def augmented_from(augment: Augment, image: Tensor, count: int) -> Iterator[Tensor]:
    return (augment(image, seed=0, epoch=epoch, index=0) for epoch in range(count))


def test_borders_continue_instead_of_turning_black() -> None:
    bright = torch.full((3, SIDE, SIDE), 200, dtype=torch.uint8)
    strong = Augment(rotation=45, shear=20, perspective=0.5, distortion=0.05, **ALWAYS)
    for result in augmented_from(strong, bright, 20):
        assert (result == 200).all()


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Augment)])
def test_description_tells_every_parameter(field: str) -> None:
    standard = Augment()
    changed = dataclasses.replace(
        standard, **{field: getattr(standard, field) * 0.5 if field != "nodes" else 7}
    )
    assert changed.description != standard.description
    assert Augment().description == standard.description


@pytest.mark.parametrize(
    "wrong", [{"rotation": -1}, {"shear_probability": 1.1}, {"flip": 2}, {"nodes": 1}, {"perspective": 1}]
)
def test_impossible_magnitudes_are_refused(wrong: dict[str, float]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(UserError, match=f"^--{name.replace('_', '-')} is {value}; it must be between"):
        Augment(**wrong)  # type: ignore[arg-type]


def test_normalise_by_hand() -> None:
    image = torch.tensor([0, 128, 255], dtype=torch.uint8)[:, None, None].expand(3, 2, 2)
    result = Normalise((0.1, 0.2, 0.3), (0.5, 1.0, 2.0))(image)
    assert (result.shape, result.dtype) == ((3, 2, 2), torch.float32)
    expected = torch.tensor([(0 - 0.1) / 0.5, 128 / 255 - 0.2, (1 - 0.3) / 2])
    torch.testing.assert_close(result[:, 1, 0], expected)
    assert torch.equal(Normalise((0.1, 0.2, 0.3), (0.5, 1.0, 2.0))(image.expand(5, 3, 2, 2))[4], result)


@pytest.mark.parametrize("mean", [(0.2,), (0.1, 0.2, 0.3)])
def test_normalise_to_grey_by_luma(mean: tuple[float, ...]) -> None:
    image = torch.tensor([255, 0, 255], dtype=torch.uint8)[:, None, None].expand(4, 3, 2, 2)
    result = Normalise(mean, (0.5,), channels=1)(image)
    assert result.shape == (4, 1, 2, 2)
    torch.testing.assert_close(result[0, 0, 0, 0], torch.tensor((0.299 + 0.114 - 0.2) / 0.5))


@pytest.mark.parametrize("wrong", [((0.0, 0.0), (1.0,), 3), ((0.0,), (0.0,), 3), ((0.0,), (1.0,), 2)])
def test_impossible_normalisation_is_refused(wrong: tuple[tuple[float, ...], tuple[float, ...], int]) -> None:
    with pytest.raises(UserError):
        Normalise(*wrong)


PLAIN = Normalise((0.0,), (1.0,))


def test_epoch_zero_is_plain_and_later_epochs_differ() -> None:
    views = Views(Pictures(), PLAIN, augment=Augment(**ALWAYS), seed=5)
    plain, first, second = (views[1, epoch] for epoch in range(3))
    assert torch.equal(plain.inputs, PLAIN(smooth_picture(1)))
    assert not torch.equal(first.inputs, plain.inputs)
    assert not torch.equal(first.inputs, second.inputs)
    assert (first.label, first.index, len(views)) == (1, 1, 3)
    other_seed = Views(Pictures(), PLAIN, augment=Augment(**ALWAYS), seed=6)
    assert not torch.equal(other_seed[1, 1].inputs, first.inputs)


def test_without_augmentation_every_epoch_is_plain() -> None:
    views = Views(Pictures(), PLAIN, augment=None, seed=0)
    assert torch.equal(views[2, 7].inputs, views[2, 0].inputs)


def test_number_of_workers_changes_nothing() -> None:
    views = Views(Pictures(), PLAIN, augment=Augment(), seed=0)
    keys = [(index, epoch) for epoch in range(3) for index in range(3)]
    alone, shared = (
        list(DataLoader(views, batch_size=2, sampler=keys, num_workers=workers)) for workers in (0, 2)
    )
    assert [batch.index.tolist() for batch in alone] == [[0, 1], [2, 0], [1, 2], [0, 1], [2]]
    for one, other in zip(alone, shared, strict=True):
        assert isinstance(other, View)
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
