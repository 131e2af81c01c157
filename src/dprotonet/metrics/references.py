"""What hidden pixels may become besides black and blur: the mean colour, noise, another image.

A network may take black for an object and blur for a photograph; a map that is right about what matters
should win whatever stands in for it. Deletion goes from the image to such a reference, insertion from it to
the image, pixels in the order of the raw map; all else is as in `curves`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from dprotonet.metrics.curves import RiseProtocol, Score, area_under, curves_between


class Areas(NamedTuple):
    """Areas under the curves (N,)."""

    deletion: Tensor  # lower is better
    insertion: Tensor  # higher is better


def towards(
    score: Score, images: Tensor, references: Tensor, maps: Tensor, *, protocol: RiseProtocol
) -> Areas:
    """Deletion to, and insertion from, references of the images' shape (N, C, H, W); maps (N, H, W).

    Costs twice the protocol's steps and one, 58 passes per image by default. The blur and the space of the
    protocol play no part.
    """
    if references.shape != images.shape:
        shapes = f"{tuple(references.shape)} for images {tuple(images.shape)}"
        raise ValueError(f"references have shape {shapes}; there must be one for each image")
    deletion = curves_between(score, images, references, maps, protocol=protocol)
    insertion = curves_between(score, references, images, maps, protocol=protocol)
    return Areas(area_under(deletion), area_under(insertion))


def mean_colour(images: Tensor) -> Tensor:
    """Every pixel the mean colour of its image (N, C, H, W)."""
    return images.mean(dim=(2, 3), keepdim=True).expand_as(images)


def noise(images: Tensor, *, seed: int = 0) -> Tensor:
    """Every value normal with mean and spread of its channel in its image; one draw for all images."""
    drawn = torch.randn(images.shape[1:], generator=torch.Generator().manual_seed(seed)).to(images)
    spread = images.flatten(2).std(dim=2, correction=0)[..., None, None]
    return mean_colour(images) + spread * drawn
