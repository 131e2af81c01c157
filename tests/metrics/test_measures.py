"""All measures at once are the single ones, and say how they were made."""

import pytest
import torch
from torch import Tensor

from dprotonet.metrics.faithfulness import (
    RiseProtocol,
    area_under,
    average_drop,
    average_gain,
    average_increase,
    deletion_curves,
    explained_images,
    insertion_curves,
)
from dprotonet.metrics.localization import energy_share, overlap, pointing, sweep, top_share
from dprotonet.metrics.measures import Explained, Protocol, Truth, measured

COUNT, SIZE = 5, (12, 16)
PROTOCOL = Protocol(RiseProtocol(steps=6, batch=7), keep=0.3, top=0.25)


@pytest.fixture
def images() -> Tensor:
    return torch.randn(COUNT, 3, *SIZE, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def maps() -> Explained:
    raw = torch.randn(COUNT, *SIZE, generator=torch.Generator().manual_seed(1))
    return Explained(raw, raw.sigmoid())


@pytest.fixture
def truth() -> Truth:
    objects = torch.zeros(COUNT, *SIZE, dtype=torch.bool)
    objects[1:, 3:9, 4:10] = True  # the first image shows none
    return Truth(objects, objects & (torch.arange(SIZE[1]) > 7))


def score(images: Tensor, rows: Tensor) -> Tensor:
    """A probability that depends on the image and on which it derives from."""
    return (images[:, 0, 2:9].mean(dim=(1, 2)) * 3 + rows / 3).sigmoid()


def test_each_value_is_that_of_its_own_function(images: Tensor, maps: Explained, truth: Truth) -> None:
    found = measured(score, images, maps, truth, protocol=PROTOCOL)
    rows = torch.arange(COUNT)
    before = score(images, rows)
    soft = score(explained_images(images, maps.heatmaps, keep=None), rows)
    kept = score(explained_images(images, maps.raw, keep=0.3), rows)
    deletion = deletion_curves(score, images, maps.raw, protocol=PROTOCOL.rise)
    insertion = insertion_curves(score, images, maps.raw, protocol=PROTOCOL.rise)
    assert truth.objects is not None
    assert truth.part is not None
    placed = overlap(top_share(maps.raw, 0.25), truth.objects)
    expected = {
        "deletion": area_under(deletion),
        "insertion": area_under(insertion),
        "AD": average_drop(before, soft),
        "AI": average_increase(before, soft),
        "AG": average_gain(before, soft),
        "AD30": average_drop(before, kept),
        "AI30": average_increase(before, kept),
        "DICE": placed.dice,
        "IOU": placed.iou,
        "PPV": placed.ppv,
        "sensitivity": placed.sensitivity,
        "energy": energy_share(maps.heatmaps, truth.objects),
        "pointing": pointing(maps.raw, truth.objects),
        "part": energy_share(maps.heatmaps, truth.part),
    }
    assert list(found.values) == [measure.name for measure in PROTOCOL.measures] == list(expected)
    for name, values in expected.items():
        assert torch.allclose(found.values[name], values, equal_nan=True), name
    assert found.values["DICE"].isnan().tolist() == [True, False, False, False, False]
    assert torch.equal(found.deletion, deletion)
    assert torch.equal(found.insertion, insertion)
    assert torch.equal(found.overlaps["IOU"][1:], sweep(maps.raw, truth.objects).iou[1:])


def test_without_truth_only_faithfulness_is_known(images: Tensor, maps: Explained) -> None:
    found = measured(score, images, maps, protocol=PROTOCOL)
    unknown = [name for name, values in found.values.items() if values.isnan().all()]
    assert unknown == ["DICE", "IOU", "PPV", "sensitivity", "energy", "pointing", "part"]
    assert found.overlaps == {}


def test_the_space_of_pixels_hides_by_black(images: Tensor, maps: Explained) -> None:
    black = torch.tensor([-2.0, -1.0, -3.0]).view(1, 3, 1, 1)
    protocol = Protocol(RiseProtocol(steps=6, space="pixels"))
    found = measured(score, images, maps, protocol=protocol, black=black)
    rows = torch.arange(COUNT)
    soft = score(explained_images(images, maps.heatmaps, keep=None, fill=black), rows)
    assert torch.allclose(found.values["AD"], average_drop(score(images, rows), soft))
    assert torch.allclose(found.deletion[:, -1], score(black.expand_as(images), rows))
    plain = measured(score, images, maps, protocol=Protocol(RiseProtocol(steps=6)), black=black)
    assert not torch.allclose(plain.values["AD"], found.values["AD"])
    assert {"rise-6-pixels", "soft-pixels", "keep50-pixels"} <= set(protocol.facts.values())
    assert protocol.facts != Protocol(RiseProtocol(steps=6)).facts


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_a_share_lies_between_0_and_1(share: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Protocol(top=share)
    with pytest.raises(ValueError, match="between 0 and 1"):
        Protocol(keep=share)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_value_counts_as_a_share_of_what_lies_between_blank_and_whole(
    images: Tensor, maps: Explained, truth: Truth, sign: int
) -> None:
    def value(given: Tensor, rows: Tensor) -> Tensor:
        return sign * (40 + 7 * given[:, 0].abs().mean(dim=(1, 2)))

    protocol = Protocol(PROTOCOL.rise, keep=0.3, top=0.25, of_value=True)
    found = measured(value, images, maps, truth, protocol=protocol)
    share = images[:, 0].abs()
    assert torch.allclose(found.deletion[:, 0], torch.full((COUNT,), float(sign)), atol=1e-4)
    assert torch.allclose(found.deletion[:, -1], torch.zeros(COUNT), atol=1e-4)
    hottest = maps.raw.flatten(1).argsort(dim=1, descending=True, stable=True)[:, : SIZE[0] * SIZE[1] // 6]
    gone = share.flatten(1).gather(1, hottest).sum(dim=1) / share.flatten(1).sum(dim=1)
    assert torch.allclose(found.deletion[:, 1], sign * (1 - gone), atol=1e-4)
    assert set(found.values) == {measure.name for measure in protocol.measures}
    assert not {"AD", "AI", "AG"} & set(found.values)
    assert "AD, AI and AG need a probability" in protocol.facts["measured"]


def test_an_image_that_is_worth_a_blank_one_has_no_share(images: Tensor, maps: Explained) -> None:
    found = measured(
        lambda given, rows: given[:, 0].abs().mean(dim=(1, 2)) * (rows > 0) + 3,
        images, maps, Truth(), protocol=Protocol(PROTOCOL.rise, of_value=True),
    )  # fmt: skip
    assert found.values["deletion"].isnan().tolist() == [True] + [False] * (COUNT - 1)
