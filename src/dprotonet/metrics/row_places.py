"""Does a row pair two places that look alike, and does it stay where it is? One number for each question.

A row of an explanation says that a place of an image looks like a place of a training image. `place_rank`
asks local features whether that is so: how many other places of the training image look more like it, and
the other way round. No layout is assumed, so it serves birds of any pose as well as radiographs.
`kept_share` says how often a place stays when the image is shaken.
"""

from torch import Tensor
from torch.nn.functional import normalize

from dprotonet.metrics.distinctness import FAR


def place_rank(first: Tensor, second: Tensor, points: Tensor) -> float:
    """The share of places that fit better than the two that are shown, mean of both directions, in [0, 1).

    Feature maps (D, h, w) of two images, and `points` (2, 2): x and y of the place in each, as shares of the
    sides. 0: of all places of either image, the one shown looks most like that of the other.
    """
    if first.ndim != 3 or second.ndim != 3 or len(first) != len(second) or points.shape != (2, 2):
        shapes = f"{tuple(first.shape)}, {tuple(second.shape)} and points {tuple(points.shape)}"
        raise ValueError(f"feature maps are {shapes}; wanted (D, h, w) twice and (2, 2)")
    here, there = _cell(first, points[0]), _cell(second, points[1])
    return (
        _better(second, first.flatten(1)[:, here], there) + _better(first, second.flatten(1)[:, there], here)
    ) / 2


def kept_share(before: Tensor, after: Tensor, *, far: float = FAR) -> Tensor:
    """In which share of N shaken images a place stays: before (M, 2), after (N, M, 2) as shares; (M,)."""
    if before.ndim != 2 or after.ndim != 3 or after.shape[1:] != before.shape:
        raise ValueError(
            f"points {tuple(before.shape)} against {tuple(after.shape)}; wanted (M, 2), (N, M, 2)"
        )
    return ((after - before).norm(dim=2) <= far).double().mean(dim=0)


def _better(features: Tensor, wanted: Tensor, shown: int) -> float:
    """The share of places (D, h, w) that look more like a vector (D,) than the one of number `shown`."""
    closeness = normalize(wanted, dim=0) @ normalize(features.flatten(1), dim=0)
    return float((closeness > closeness[shown]).double().mean())


def _cell(features: Tensor, point: Tensor) -> int:
    """The number of the place at a point."""
    height, width = features.shape[1:]
    x, y = (
        min(int(share * length), length - 1)
        for share, length in zip(point.tolist(), (width, height), strict=True)
    )
    return y * width + x
