"""How good are a run's prototypes? Size, steadiness, stability, consistency, duplicates, on heatmaps of MDM.

For some images of each class, its strongest prototypes are found in the image and once more in the image with
noise. Parts (the built-in birds have them) tell whether a prototype always means the same one; without parts
those columns are empty.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dprotonet.data.base import ImageData, Sample
from dprotonet.errors import UserError
from dprotonet.experiment.model import Model
from dprotonet.interpretation.mdm import MDM, Preset
from dprotonet.interpretation.nodes import RegionNode
from dprotonet.metrics.prototypes import consistency, explanation_size, stability, twins
from dprotonet.metrics.randomisation import rank_correlation

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PrototypeQuality:
    """One prototype, as means over the images it was looked for in; None where nothing can be said."""

    prototype: int
    class_name: str
    images: int
    size: float | None  # share of the pixels that hold 90 % of the heat
    steadiness: float | None  # rank correlation of the heatmap with that under noise
    stability: float | None  # share of images whose heatmap peaks on the same part under noise
    consistency: float | None  # share of images in which it covers its most usual part
    part: str | None  # that part
    twins: tuple[int, ...]  # prototypes of its class that coincide with it


class Pair(NamedTuple):
    """A prototype in an image of its class."""

    sample: Sample
    prototype: int


@dataclass(frozen=True)
class QualityCheck:
    """What to look at: `images` of every class, its `top` prototypes, and the noise."""

    model: Model
    data: ImageData
    images: int = 3
    top: int = 2
    noise: float = 0.2  # standard deviation, in the network's normalised space (Huang et al., 2023)
    tolerance: float = 1e-3  # distance of twins, as a share of the mean length of prototypes
    preset: str | Preset = "fast"
    seed: int = 0

    def run(self, on_progress: Progress | None = None) -> list[PrototypeQuality]:
        """Every prototype that was looked for, in order."""
        pairs = [pair for label in range(len(self.data.classes)) for pair in self._pairs(label)]
        if not pairs:
            raise UserError("the split has no image to look at prototypes in")
        generator = torch.Generator().manual_seed(self.seed)
        found: list[tuple[Tensor, Tensor]] = []
        for number, pair in enumerate(pairs):
            found.append(self._maps(pair, generator))
            if on_progress is not None:
                on_progress(number + 1, len(pairs))
        maps, shaken = (torch.stack(column).cpu() for column in zip(*found, strict=True))
        return self._judged(pairs, maps, shaken)

    def _pairs(self, label: int) -> list[Pair]:
        """Images of a class, and the prototypes that say most for the class in them."""
        own = [index for index, known in enumerate(self.data.labels) if known == label]
        samples = [self.data[index] for index in own[: self.images]]
        if not samples:
            return []
        inputs = self.model.inputs([sample.image for sample in samples])
        with torch.no_grad():
            evidence = self.model.prototyped.evidence(inputs)
            labels = torch.full((len(inputs),), label, device=inputs.device)
            said = self.model.prototyped.contributions(evidence, labels).mean(dim=0).cpu()
        mine = (self.model.prototyped.prototype_class.cpu() == label).nonzero().flatten()
        strongest = mine[said[mine].argsort(descending=True)[: self.top]].tolist()
        return [Pair(sample, number) for number in strongest for sample in samples]

    def _maps(self, pair: Pair, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Heatmaps of the prototype in the image and in the image with noise."""
        image = self.model.inputs([pair.sample.image])
        noise = self.noise * torch.randn(image.shape, generator=generator).to(image)
        return self._map(image, pair.prototype), self._map(image + noise, pair.prototype)

    def _map(self, image: Tensor, prototype: int) -> Tensor:
        network = self.model.prototyped
        with torch.no_grad():
            region = network.evidence(image).region[:, prototype]
        node = RegionNode(network.encoder, region)
        return MDM(preset=self.preset).explain(image, node)[0].heatmap

    def _judged(self, pairs: Sequence[Pair], maps: Tensor, shaken: Tensor) -> list[PrototypeQuality]:
        owner = torch.tensor([pair.prototype for pair in pairs])
        names = sorted({name for pair in pairs for name in pair.sample.parts})
        size, steady = explanation_size(maps).for_most, rank_correlation(maps, shaken)
        stable = torch.full_like(steady, torch.nan)
        usual: dict[int, tuple[float, str]] = {}
        if names:
            parts = torch.stack([_parts(pair.sample, names) for pair in pairs])
            stable = stability(maps, shaken, parts)
            covered = consistency(maps, parts, owner)
            for number in owner.unique().tolist():
                if int(covered.part[number]) >= 0:
                    usual[number] = float(covered.share[number]), names[int(covered.part[number])]
        network = self.model.prototyped
        same = twins(
            network.prototypes.vectors.cpu(), network.prototype_class.cpu(), tolerance=self.tolerance
        )
        return [
            PrototypeQuality(
                prototype=number,
                class_name=self.model.prototypes[number].class_name,
                images=int((owner == number).sum()),
                size=_mean(size[owner == number]),
                steadiness=_mean(steady[owner == number]),
                stability=_mean(stable[owner == number]),
                consistency=usual[number][0] if number in usual else None,
                part=usual[number][1] if number in usual else None,
                twins=same.get(number, ()),
            )
            for number in owner.unique().tolist()
        ]


def quality_summary(found: Sequence[PrototypeQuality]) -> dict[str, Any]:
    """Means over prototypes, and every single one."""
    columns = ("size", "steadiness", "stability", "consistency")
    values = {name: [getattr(item, name) for item in found] for name in columns}
    known = {name: [value for value in column if value is not None] for name, column in values.items()}
    means = {name: sum(column) / len(column) if column else None for name, column in known.items()}
    return {
        **means,
        "consistent prototypes": _share([value >= 0.8 for value in known["consistency"]]),
        "prototypes with a twin": sum(bool(item.twins) for item in found),
        "prototypes": json.loads(json.dumps([asdict(item) for item in found])),
    }


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


def _parts(sample: Sample, names: Sequence[str]) -> Tensor:
    """Masks of all parts (K, H, W); one that the object lacks is empty."""
    height, width = sample.image.shape[-2:]
    nothing = torch.zeros(height, width, dtype=torch.bool)
    return torch.stack([sample.parts.get(name, nothing) for name in names])


def _mean(values: Tensor) -> float | None:
    mean = float(values.double().nanmean())
    return None if mean != mean else mean
