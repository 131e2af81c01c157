"""Ways in which a heatmap misleads, each made on purpose, for benchmarks/gallery.py."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

import dprotonet as dp
from dprotonet.data.base import Sample
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.interpretation.ranked_masks import blurred
from dprotonet.metrics.controls import centre_gaussian
from dprotonet.metrics.localization import energy_share, top_share

QUARTER = 112


class Panel(NamedTuple):
    """An image (3, H, W) uint8, the heatmap (H, W) over it if any, and what is said of it."""

    image: Tensor
    heat: Tensor | None
    name: str
    caption: str = ""


class Subject(NamedTuple):
    """The network, and the birds of the gallery."""

    classifier: Classifier
    shown: list[Tensor]
    truth: Tensor  # (N, H, W) bool
    inputs: Tensor
    labels: list[int]

    @classmethod
    def of(cls, classifier: Classifier, samples: list[Sample]) -> "Subject":
        shown = [sample.image for sample in samples]
        truth = torch.stack([sample.truth for sample in samples if sample.truth is not None])
        return cls(classifier, shown, truth, classifier.inputs(shown), [sample.label for sample in samples])

    @property
    def module(self) -> nn.Module:
        return self.classifier.module

    @torch.no_grad()
    def probability(self, images: Tensor, label: int) -> float:
        return float(self.module(images).softmax(dim=1)[0, label])

    def layers(self) -> list[nn.Module]:
        """The stages of the backbone, the first one first."""
        found = [item for name, item in self.module.named_modules() if name.split(".")[-2:-1] == ["blocks"]]
        return [item for item in found if next(item.parameters(), None) is not None]


def heat_of(explainer: Callable[..., object], images: Tensor, target: object) -> Tensor:
    found: object = explainer(images, target)
    return torch.as_tensor(found)[0]


def likeness(one: Tensor, other: Tensor) -> float:
    """Spearman's rank correlation."""
    ranks = torch.stack([item.flatten().argsort().argsort().float() for item in (one, other)])
    return float(torch.corrcoef(ranks)[0, 1])


def on_bird(heat: Tensor, truth: Tensor) -> str:
    return f"{float(energy_share(heat[None], truth[None])[0]):.0%} of the heat is on the bird"


def flat(subject: Subject) -> list[Panel]:
    images, label = subject.inputs[:1], subject.labels[0]

    def unmoved(seen: Tensor) -> Tensor:
        return subject.module(seen)[:, label] * 0 + 3

    empty = heat_of(dp.MDM(subject.module), images, unmoved)
    own = heat_of(dp.MDM(subject.module), images, label)
    return [
        Panel(subject.shown[0], None, "the image"),
        Panel(subject.shown[0], empty, "a constant node", f"hottest place: {float(empty.max()):.1f}"),
        Panel(subject.shown[0], own, "its class", f"hottest place: {float(own.max()):.1f}"),
    ]


def specks(subject: Subject) -> list[Panel]:
    images, label = subject.inputs[:1], subject.labels[0]
    fine = dp.preset("fast", sizes=(QUARTER,), iterations=60, rate=0.3, zoom=1.0, trust=1.0, focus=1.0)
    panels = [Panel(subject.shown[0], None, "the image")]
    for name, chosen in (("masks of 112 × 112", fine), ("masks of 6 to 15", dp.preset("fast"))):
        (found,) = dp.MDM(subject.module, preset=chosen).explain(images, label)
        kept = top_share(found.raw[None], 0.1).float().unsqueeze(1)
        share = subject.probability(images * kept + blurred(images) * (1 - kept), label)
        where = on_bird(found.heatmap, subject.truth[0])
        said = f"its hottest tenth over a blur: {share:.0%} of the class; {where}"
        panels.append(Panel(subject.shown[0], found.heatmap, name, said))
    return panels


def centre(subject: Subject) -> list[Panel]:
    panels = []
    shift = (70, 70)
    for name, moved in (("in the middle", (0, 0)), ("moved", shift)):
        image = subject.shown[1].roll(moved, dims=(1, 2))
        truth = subject.truth[1].roll(moved, dims=(0, 1))
        seen = subject.classifier.inputs([image])
        bell = centre_gaussian(1, (224, 224))[0]
        own = heat_of(dp.MDM(subject.module), seen, subject.labels[1])
        panels += [
            Panel(image, bell, f"a bell, bird {name}", on_bird(bell, truth)),
            Panel(image, own, f"MDM, bird {name}", on_bird(own, truth)),
        ]
    return panels


def edges(subject: Subject) -> list[Panel]:
    images, (label, other) = subject.inputs[2:3], subject.labels[2:4]
    early = dp.CAM(subject.module, "layercam", layer=subject.layers()[0])
    own, else_ = (heat_of(early, images, target) for target in (label, other))
    deep = heat_of(dp.CAM(subject.module, "layercam"), images, label)
    return [
        Panel(subject.shown[2], None, "the image"),
        Panel(subject.shown[2], own, "first stage, its class", on_bird(own, subject.truth[2])),
        Panel(
            subject.shown[2], else_, "first stage, another", f"rank correlation {likeness(own, else_):.2f}"
        ),
        Panel(subject.shown[2], deep, "deepest map, its class", on_bird(deep, subject.truth[2])),
    ]


def classless(subject: Subject) -> list[Panel]:
    small = [nn.functional.avg_pool2d(image[None].float(), 2)[0].byte() for image in subject.shown[:4]]
    image = torch.cat([torch.cat(small[:2], dim=2), torch.cat(small[2:4], dim=2)], dim=1)
    seen = subject.classifier.inputs([image])
    corners = [(slice(0, QUARTER), slice(0, QUARTER)), (slice(QUARTER, 224), slice(QUARTER, 224))]
    panels = [Panel(image, None, "four species")]
    for name, explainer in (
        ("Eigen-CAM", dp.CAM(subject.module, "eigencam")),
        ("MDM", dp.MDM(subject.module)),
    ):
        for place, corner, number in (("upper left", corners[0], 0), ("lower right", corners[1], 3)):
            heat = heat_of(explainer, seen, subject.labels[number])
            share = float(heat[corner].sum() / heat.sum())
            panels.append(Panel(image, heat, f"{name}, {place}", f"{share:.0%} of the heat is there"))
    return panels


def shuffled(image: Tensor) -> Tensor:
    """Tiles of 28 × 28 pixels of an image (3, 224, 224) in another order."""
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    tiles = image.unfold(1, 28, 28).unfold(2, 28, 28).reshape(3, 64, 28, 28)[:, order]
    return tiles.reshape(3, 8, 8, 28, 28).permute(0, 1, 3, 2, 4).reshape(3, 224, 224)


def strange(subject: Subject) -> list[Panel]:
    image = shuffled(subject.shown[0])
    seen = subject.classifier.inputs([image])
    with torch.no_grad():
        probabilities = subject.module(seen).softmax(dim=1)[0]
    label = int(probabilities.argmax())
    said = f"{subject.classifier.classes[label]}, {float(probabilities[label]):.0%}"
    panels = [Panel(image, None, "tiles of a bird, shuffled", said)]
    for name, explainer in (("Grad-CAM", dp.CAM(subject.module)), ("MDM", dp.MDM(subject.module))):
        heat = heat_of(explainer, seen, label)
        panels.append(Panel(image, heat, name, f"hottest place: {float(heat.max()):.1f}"))
    return panels


def layers(subject: Subject) -> list[Panel]:
    images, label, stages = subject.inputs[4:5], subject.labels[4], subject.layers()
    panels = [Panel(subject.shown[4], None, "the image")]
    for number in (0, len(stages) // 2, len(stages) - 1):
        heat = heat_of(dp.CAM(subject.module, layer=stages[number]), images, label)
        named = f"Grad-CAM, stage {number + 1} of {len(stages)}"
        panels.append(Panel(subject.shown[4], heat, named, on_bird(heat, subject.truth[4])))
    found = heat_of(dp.CAM(subject.module), images, label)
    return [*panels, Panel(subject.shown[4], found, "layer found", on_bird(found, subject.truth[4]))]


def saturated(subject: Subject) -> list[Panel]:
    images, label = subject.inputs[5:6], subject.labels[5]

    def sure(seen: Tensor) -> Tensor:
        return (100 * subject.module(seen)).softmax(dim=1)[:, label]

    def logit(seen: Tensor) -> Tensor:
        return subject.module(seen)[:, label]

    leaf = images.clone().requires_grad_(True)
    panels = [Panel(subject.shown[5], None, "the image")]
    for name, node in (("100 × logits", sure), ("the logit", logit)):
        value = node(leaf)
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
        slope = gradient.abs().sum(dim=1)[0]
        heat = slope / slope.max().clamp_min(1e-30) if slope.max() > 1e-20 else torch.zeros_like(slope)
        said = f"value {value.item():.3g}, largest slope {float(slope.max()):.1e}"
        panels.append(Panel(subject.shown[5], heat, f"gradient, {name}", said))
    found = heat_of(dp.MDM(subject.module), images, logit)
    return [*panels, Panel(subject.shown[5], found, "MDM, the logit", on_bird(found, subject.truth[5]))]


def noise(subject: Subject) -> list[Panel]:
    images, label = subject.inputs[3:4], subject.labels[3]
    panels = [Panel(subject.shown[3], None, "the image")]
    for samples in (40, 600):
        one, other = (
            heat_of(dp.Rise(subject.module, samples=samples, seed=seed), images, label) for seed in (0, 1)
        )
        said = f"two seeds: rank correlation {likeness(one, other):.2f}"
        panels += [
            Panel(subject.shown[3], one, f"RISE, {samples} masks", said),
            Panel(subject.shown[3], other, "the same, another seed"),
        ]
    return panels


FAILURES: dict[str, tuple[str, Callable[[Subject], list[Panel]]]] = {
    "flat": ("A flat map", flat),
    "specks": ("Masks too fine: specks", specks),
    "centre": ("Centre bias: objects stand in the middle", centre),
    "edges": ("Contours instead of reasons: a layer too early", edges),
    "classless": ("A map that does not ask which class", classless),
    "strange": ("A strange image", strange),
    "layers": ("A CAM on the wrong layer", layers),
    "saturated": ("A saturated output has no slope", saturated),
    "noise": ("Too few samples", noise),
}
