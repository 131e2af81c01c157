"""How strange an image is to a set of prototypes, and from when on that deserves a warning.

Pure functions of distances. An image unlike all training images still gets a class; the distance to its
nearest prototype tells. The threshold is a conformal quantile: of images like those it was taken from, the
stated share lies above it, whatever the distances are distributed like.
"""

import math

import torch
from torch import Tensor

from dprotonet.errors import UserError


def strangeness(distances: Tensor) -> Tensor:
    """How far the nearest prototype is, (B,), from the squared distances (B, P) of Eq. (1)."""
    return distances.amin(dim=1).sqrt()


def class_strangeness(distances: Tensor, prototype_class: Tensor) -> Tensor:
    """How far the prototypes of the nearest class are on average, (B,): the root of the mean of (B, P).

    Where prototypes are parts, one of them is soon met by chance; a whole class's are not.
    """
    classes = int(prototype_class.max()) + 1
    count = torch.bincount(prototype_class, minlength=classes)
    total = distances.new_zeros(len(distances), classes).index_add(1, prototype_class, distances)
    return (total / count).nan_to_num(nan=torch.inf).amin(dim=1).sqrt()  # a class without any is no match


def rank_of(images: int, share: float) -> int:
    """Which of the sorted values of `images` known images is the threshold, from 1.

    The + 1 is the new image, which might take any place among them. With too few images for so small a share
    it is the largest: then one new image in images + 1 lies above.
    """
    return min(images, math.ceil((1 - share) * (images + 1) - 1e-9))  # 1e-9: of rounding


def conformal_threshold(values: Tensor, share: float = 0.05) -> float:
    """What at most `share` of new images of the same kind exceed, from the values (N,) of N known ones."""
    if not 0 < share < 1:
        raise UserError(f"a share of images to warn of lies between 0 and 1, not {share}")
    if len(values) == 0 or not bool(torch.isfinite(values).all()):
        raise ValueError("a threshold needs finite values, at least one")
    return float(values.double().sort().values[rank_of(len(values), share) - 1])
