"""Maps of prototypes, to be judged: the decoder's, the network's own, and controls that know no network.

All are asked alike: images, the prototypes wanted on them, and the sample they come from. Controls are bells
round a point: in the middle, anywhere, or anywhere on the object, which finds parts by their area alone.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from dprotonet.data.base import Sample
from dprotonet.errors import UserError
from dprotonet.experiment.explaining.explainers import own_maps, row_node
from dprotonet.interpretation.mdm import MDM, Preset
from dprotonet.network import DProtoNet

KINDS = ("decoder", "similarity")
CONTROLS = ("centre", "random", "object")
_PAIRS = 32  # of an image and a prototype, decoded at a time: bounds the memory


class RowMaps(Protocol):
    """Heatmaps (M, H, W) of M prototypes, one per image (M, C, H, W); a single image serves all of them."""

    def __call__(self, images: Tensor, numbers: Sequence[int], sample: Sample) -> Tensor: ...


def row_maps(kind: str, network: DProtoNet, preset: str | Preset) -> RowMaps:
    """The maps of that kind for that network."""
    if kind not in KINDS:
        raise UserError(f"unknown maps '{kind}'; choose one of {', '.join(KINDS)}")
    return DecoderMaps(network, preset) if kind == "decoder" else OwnMaps(network)


class DecoderMaps:
    """What the decoder finds at the region in which each prototype is found, Eqs. (12) and (14)."""

    def __init__(self, network: DProtoNet, preset: str | Preset) -> None:
        self.network, self.decoder = network, MDM(preset=preset)

    def __call__(self, images: Tensor, numbers: Sequence[int], sample: Sample) -> Tensor:
        chosen = torch.as_tensor(numbers, device=images.device)
        each = images.expand(len(numbers), *images.shape[1:])
        with torch.no_grad():
            region = self.network.evidence(images).region.expand(len(numbers), -1)
        region = region.gather(1, chosen.unsqueeze(1)).squeeze(1)
        maps = [
            found.heatmap
            for block, where in zip(each.split(_PAIRS), region.split(_PAIRS), strict=True)
            for found in self.decoder.explain(block, row_node(self.network, where))
        ]
        return torch.stack(maps).cpu()


class OwnMaps:
    """How the network explains itself: enlarged similarity or occurrence maps, at one pass an image."""

    def __init__(self, network: DProtoNet) -> None:
        self.explainer = own_maps(network)

    def __call__(self, images: Tensor, numbers: Sequence[int], sample: Sample) -> Tensor:
        return self.explainer.of_prototypes(images, numbers).cpu()


class ControlMaps:
    """Bells (standard deviation a quarter of the side) round points that know nothing of the network."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.generator = kind, torch.Generator().manual_seed(seed)

    def __call__(self, images: Tensor, numbers: Sequence[int], sample: Sample) -> Tensor:
        height, width = images.shape[-2:]
        x, y = self._points(len(numbers), sample).double().unsqueeze(2).unbind(dim=1)  # (M, 1) each
        across = ((torch.arange(width) - x) / (width / 4)) ** 2
        down = ((torch.arange(height) - y) / (height / 4)) ** 2
        return torch.exp(-0.5 * (down.unsqueeze(2) + across.unsqueeze(1))).float()

    def _points(self, count: int, sample: Sample) -> Tensor:
        """x and y of a pixel for each, (count, 2); of the whole image where no object is known."""
        height, width = sample.image.shape[-2:]
        if self.kind == "centre":
            return torch.tensor([[width // 2, height // 2]]).expand(count, 2)
        known = self.kind == "object" and sample.truth is not None and bool(sample.truth.any())
        place = sample.truth if known else torch.ones(height, width, dtype=torch.bool)
        assert place is not None
        pixels = place.nonzero().flip(1)
        return pixels[torch.randint(len(pixels), (count,), generator=self.generator)]
