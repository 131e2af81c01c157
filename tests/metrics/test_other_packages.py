"""Our numbers are those of torchmetrics, torchcam, pytorch-grad-cam and Quantus at equal settings.

The same network, the same maps and the same class go into both. Quantus is not part of `dev` (see
pyproject.toml): there its tests run once `dprotonet[bench]` is installed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dprotonet.compat import import_guarded
from dprotonet.metrics.classification import auroc, confusion_matrix, sensitivity, specificity
from dprotonet.metrics.controls import random_maps
from dprotonet.metrics.faithfulness import (
    RiseProtocol,
    area_under,
    average_drop,
    average_increase,
    deletion_curves,
    explained_images,
    insertion_curves,
)
from dprotonet.metrics.localization import overlap
from dprotonet.metrics.road import RoadProtocol, road_curves

import_guarded("torchvision")  # most of them import it, unguarded

N, CLASSES, SIZE, STEPS = 4, 3, (12, 10), 6
PIXELS = SIZE[0] * SIZE[1]
PROTOCOL = RiseProtocol(steps=STEPS, kernel=5, sigma=2.0, batch=7)
MAPS = random_maps(N, SIZE, 0)  # no two pixels alike: packages differ in what they do with ties


def package(name: str) -> ModuleType:
    found: ModuleType = pytest.importorskip(name, reason=f"{name} is not installed")
    return found


class Network(nn.Module):
    """A small classifier with a convolution and a rectifier, so that masking is not linear."""

    def __init__(self) -> None:
        super().__init__()
        inside = 8 * (SIZE[0] - 2) * (SIZE[1] - 2)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = nn.Sequential(
                nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(inside, CLASSES)
            )

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits


IMAGES = torch.randn(N, 3, *SIZE, generator=torch.Generator().manual_seed(1))
NETWORK = Network().eval().requires_grad_(False)
LABELS = torch.tensor([0, 1, 2, 1])


def score(images: Tensor, rows: Tensor) -> Tensor:
    return NETWORK(images).softmax(dim=1).gather(1, LABELS[rows].unsqueeze(1)).squeeze(1)


def before_and_after() -> tuple[Tensor, Tensor]:
    rows = torch.arange(N)
    return score(IMAGES, rows), score(explained_images(IMAGES, MAPS, keep=None), rows)


# ── torchmetrics ─────────────────────────────────────────────────────────────────────────────────────


def test_overlap_is_that_of_torchmetrics() -> None:
    reference = package("torchmetrics.functional.classification")
    found, truth = MAPS > 0.6, random_maps(N, SIZE, 5) > 0.5
    names = {"dice": "f1_score", "iou": "jaccard_index", "ppv": "precision", "sensitivity": "recall"}
    for ours, theirs in names.items():
        for image, value in enumerate(getattr(overlap(found, truth), ours)):
            expected = getattr(reference, f"binary_{theirs}")(found[image].int(), truth[image].int())
            assert value.item() == pytest.approx(expected.item())


def test_auroc_sensitivity_and_specificity_are_those_of_torchmetrics() -> None:
    reference = package("torchmetrics.functional.classification")
    generator = torch.Generator().manual_seed(2)
    positive = torch.rand(60, generator=generator) < 0.4
    scores = ((torch.rand(60, generator=generator) + 0.4 * positive) * 10).round() / 14  # with ties
    assert auroc(scores, positive) == pytest.approx(reference.binary_auroc(scores, positive.int()).item())
    said = scores > 0.5
    confusion = confusion_matrix(positive.long(), said.long(), 2)
    pair = said.int(), positive.int()
    assert sensitivity(confusion) == pytest.approx(reference.binary_recall(*pair).item())
    assert specificity(confusion) == pytest.approx(reference.binary_specificity(*pair).item())


# ── torchcam ─────────────────────────────────────────────────────────────────────────────────────────


class GivenMaps:
    """What torchcam takes for an extractor, with our maps instead of its own."""

    model = NETWORK

    def __call__(self, *_: object, **__: object) -> list[Tensor]:
        return [MAPS]

    def fuse_cams(self, cams: list[Tensor]) -> Tensor:
        return cams[0]

    @contextmanager
    def _hooks_off(self) -> Iterator[None]:
        yield


def test_drop_and_increase_are_those_of_torchcam() -> None:
    metric = package("torchcam.metrics").ClassificationMetric(GivenMaps(), lambda logits: logits.softmax(-1))
    metric.update(IMAGES, LABELS.tolist())
    before, after = before_and_after()
    expected = metric.summary()
    assert average_drop(before, after).mean().item() == pytest.approx(100 * expected["avg_drop"], rel=1e-5)
    assert average_increase(before, after).mean().item() == pytest.approx(100 * expected["conf_increase"])
    assert 0 < expected["conf_increase"] < 1


def test_deletion_and_insertion_are_those_of_torchcam() -> None:
    metric = package("torchcam.metrics").DeletionInsertionMetric

    def softmax(logits: Tensor) -> Tensor:
        return logits.softmax(-1)

    seen: list[Tensor] = []
    insertion = insertion_curves(
        lambda images, rows: seen.append(images) or score(images, rows), IMAGES, MAPS, protocol=PROTOCOL
    )
    blurred = torch.cat(seen)[:: STEPS + 1]  # where our curves begin
    deletion = deletion_curves(score, IMAGES, MAPS, protocol=PROTOCOL)
    starts = {"deletion_auc": (None, deletion), "insertion_auc": (blurred, insertion)}
    for name, (baseline, curves) in starts.items():
        theirs = metric(GivenMaps(), softmax, steps=STEPS, baseline=baseline)
        theirs.update(IMAGES, LABELS.tolist())
        assert area_under(curves).mean().item() == pytest.approx(theirs.summary()[name], rel=1e-5)


# ── pytorch-grad-cam ─────────────────────────────────────────────────────────────────────────────────


def grad_cam(module: str) -> ModuleType:
    package("pytorch_grad_cam")
    return import_guarded(f"pytorch_grad_cam.{module}")


def softmax_targets() -> list[object]:
    target = grad_cam("utils.model_targets").ClassifierOutputSoftmaxTarget
    return [target(label) for label in LABELS.tolist()]


def test_drop_and_increase_are_those_of_grad_cam() -> None:
    """Its drop is p - o, not a share of p."""
    reference, given = grad_cam("metrics.cam_mult_image"), (IMAGES, MAPS.numpy(), softmax_targets(), NETWORK)
    before, after = before_and_after()
    drop, increase = reference.DropInConfidence()(*given), reference.IncreaseInConfidence()(*given)
    assert (average_drop(before, after) * before / 100).tolist() == pytest.approx(drop.tolist(), abs=1e-6)
    assert (average_increase(before, after) / 100).tolist() == increase.tolist()


@pytest.mark.parametrize("step", range(1, STEPS))
def test_deletion_is_grad_cams_removal_of_the_most_relevant(step: int) -> None:
    reference = grad_cam("metrics.perturbation_confidence")
    removal = reference.RemoveMostRelevantFirst(100 - 100 * step / STEPS, lambda image, mask: image * mask)
    metric = reference.PerturbationConfidenceMetric(removal)
    expected = metric(IMAGES, MAPS.numpy(), softmax_targets(), NETWORK, return_diff=False)
    curves = deletion_curves(score, IMAGES, MAPS, protocol=PROTOCOL)
    assert curves[:, step].tolist() == pytest.approx(expected.tolist(), abs=1e-6)


@pytest.mark.parametrize(("name", "hottest"), [("Most", True), ("Least", False)])
def test_road_is_grad_cams(name: str, hottest: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its percentile is the share that stays, and of these maps it removes as many pixels as we do."""
    package("scipy")
    reference = grad_cam("metrics.road")
    monkeypatch.setattr(reference.torch, "randn_like", torch.zeros_like)  # each draws its own noise
    shares = (0.1, 0.5, 0.9)
    metric = getattr(reference, f"ROAD{name}RelevantFirstAverage")([100 * (1 - share) for share in shares])
    change = metric(IMAGES, MAPS.numpy(), softmax_targets(), NETWORK)
    before, _ = before_and_after()
    protocol = RoadProtocol(shares=shares, noise=0, tolerance=1e-7)
    curves = road_curves(score, IMAGES, MAPS, hottest=hottest, protocol=protocol)
    assert curves.mean(dim=1).tolist() == pytest.approx((before + change).tolist(), abs=1e-5)


# ── Quantus ──────────────────────────────────────────────────────────────────────────────────────────


def flipped(images: Tensor, **settings: object) -> list[list[float]]:
    """Quantus flips the numbers of all channels, so a step of pixels has three times as many."""
    metric = package("quantus").PixelFlipping(
        features_in_step=3 * PIXELS // STEPS, normalise=False, disable_warnings=True, **settings
    )
    numbers = SimpleNamespace(x=images.numpy(), y=LABELS.numpy(), a=MAPS.unsqueeze(1).numpy())
    curves: list[list[float]] = metric(
        model=NETWORK, x_batch=numbers.x, y_batch=numbers.y, a_batch=numbers.a, channel_first=True
    )
    return curves


def test_deletion_is_quantus_pixel_flipping() -> None:
    expected = torch.tensor(np.array(flipped(IMAGES, perturb_baseline=0.0)))
    curves = deletion_curves(score, IMAGES, MAPS, protocol=PROTOCOL)[:, 1:]  # it leaves the image itself out
    assert torch.allclose(curves.double(), expected.double(), atol=1e-6)


def test_insertion_is_quantus_pixel_flipping_from_the_blur_to_the_image() -> None:
    seen: list[Tensor] = []

    def score_and_see(images: Tensor, rows: Tensor) -> Tensor:
        seen.append(images)
        return score(images, rows)

    curves = insertion_curves(score_and_see, IMAGES, MAPS, protocol=PROTOCOL)[:, 1:]
    sharp = IMAGES.flatten(1).numpy()

    def restored(arr: np.ndarray, indices: np.ndarray, **_: object) -> np.ndarray:
        changed = arr.copy()
        np.put_along_axis(changed, indices, np.take_along_axis(sharp, indices, axis=1), axis=1)
        return changed

    expected = torch.tensor(np.array(flipped(torch.cat(seen)[:: STEPS + 1], perturb_func=restored)))
    assert torch.allclose(curves.double(), expected.double(), atol=1e-6)
