"""Which places of training images show the object: those that look like what tells the classes apart.

The discriminant of globally averaged features is linear, so what it says for an image's own class is the mean
of what its places say, as in a class activation map: the *energy* of a place. It is high on the object, but
also wherever the few training images happen to differ. So it only gives examples, high energy away from the
image's border and low energy at it, and a second discriminant learns from them what places of an object look
like. Labels of images are all that is used.
"""

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from dprotonet.training.discriminant import fisher_discriminant
from dprotonet.training.moments import ClassMoments, moments_of

_HIGH, _LOW = 0.2, 0.5  # shares of an image's places whose energy is called high, and low
_SHRINKAGE = 0.1  # of the covariance of places, of which there are many
_MARGIN = 1 / 7  # of the side, on each side: the border


def border_of(height: int, width: int) -> Tensor:
    """Places near the edge, bool (h, w)."""
    border = torch.ones(height, width, dtype=torch.bool)
    rows, columns = round(height * _MARGIN), round(width * _MARGIN)
    border[rows : height - rows, columns : width - columns] = False
    return border


def class_energy(maps: Tensor, labels: Tensor) -> Tensor:
    """What each place (N, h, w) of feature maps (N, h, w, C) says for the image's own class, labels (N,).

    Of several labels (N, L): for those that it has, and against the others.

    (A (F_u - c)) · (A (m_y - c)) with the discriminant A, c of the averaged features and the class mean m_y.
    """
    classes = int(labels.max()) + 1 if labels.ndim == 1 else labels.shape[1]
    moments = moments_of(labels, classes=classes, dimension=maps.shape[-1])
    moments.update(maps.mean(dim=(1, 2)), labels)
    found = fisher_discriminant(moments, count=maps.shape[-1])
    if isinstance(moments, ClassMoments):
        expected = ((moments.means().float() - found.centre) @ found.directions.T)[labels]
    else:
        expected = (moments.expected(labels).float() - found.centre) @ found.directions.T
    return torch.einsum("nhwd,nd->nhw", (maps - found.centre) @ found.directions.T, expected)


def object_likeness(vectors: Tensor, energy: Tensor) -> Tensor:
    """How far places (N, h, w) with features `vectors` (N, h, w, C) look like an object's."""
    front, behind = _examples(energy)
    one, other = vectors[front].double(), vectors[behind].double()
    covariance = (_covariance(one) + _covariance(other)) / 2
    spread = covariance.diagonal().mean().clamp_min(1e-12)
    isotropic = spread * torch.eye(len(covariance), dtype=covariance.dtype)
    mixed = (1 - _SHRINKAGE) * covariance + _SHRINKAGE * isotropic
    direction = torch.linalg.solve(mixed, one.mean(0) - other.mean(0))
    return vectors @ direction.to(vectors)


def _examples(energy: Tensor) -> tuple[Tensor, Tensor]:
    """Places (N, h, w) that are taken for object and for background; of tiny maps the border says nothing."""
    even = avg_pool2d(energy.unsqueeze(1), 3, stride=1, padding=1, count_include_pad=False).squeeze(1)
    each = even.flatten(1)
    high = even >= each.quantile(1 - _HIGH, dim=1)[:, None, None]
    low = even <= each.quantile(_LOW, dim=1)[:, None, None]
    border = border_of(*energy.shape[1:]).expand_as(high)
    front, behind = high & ~border, low & border
    return (front, behind) if front.any() and behind.any() else (high, low)


def _covariance(vectors: Tensor) -> Tensor:
    return torch.cov(vectors.T, correction=0)
