"""Where the shaping net starts: as the projection that tells the classes apart (Fisher's discriminant).

With random weights squared distances begin at dozens, where the log similarity of Eq. (2) is flat: the
cross-entropy falls slowly at first (docs/masks.md). Here they begin at about 1.
The projection is found from the means and the covariance of pooled backbone features.

C classes have C - 1 directions. In a single one, for two classes, an image beyond all prototypes is far from
both classes and ranks behind doubtful ones, so few classes are divided into parts first (mixture discriminant
analysis).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dprotonet.data.transforms import View
from dprotonet.encoder.regions import Patches, Points
from dprotonet.encoder.shaping import Beside, Shaping
from dprotonet.inference.own import own_prototypes
from dprotonet.network import DProtoNet
from dprotonet.training.moments import ClassMoments, LabelMoments, Moments
from dprotonet.training.start import starting_vectors, telling_vectors
from dprotonet.training.views import Key, Keys, ViewSource, chunks, derived_seed, label_tensor, load

_LOOKED_AT = 200  # images that the scale is measured on
_DIRECTIONS = 9  # at least wanted; so few classes as have fewer are divided into parts
_IN_A_PART = 20  # images at least, on average: of fewer the middle says little
_CLUSTERED = 400  # images of a class that its parts are found from
_STRAIGHT = 2.0**-8  # so small the output is measured where a sigmoid is a straight line
_SOURCE = 1e-4  # of the distance to other classes: so near is only the image that a prototype started from


class Discriminant(NamedTuple):
    """x ↦ directions (K, D) · (x - centre (D,)); within a class the result has about unit covariance."""

    centre: Tensor
    directions: Tensor


def fisher_discriminant(moments: Moments, *, count: int, shrinkage: float = 0.5) -> Discriminant:
    """The `count` best directions, whitened within classes; there are never more than classes less one.

    `shrinkage` mixes the covariance with a multiple of the unit matrix: there are fewer images than channels.
    """
    count = min(count, moments.most)
    return whitened(moments, moments.within(), count=count, shrinkage=shrinkage)


def whitened(moments: Moments, within: Tensor, *, count: int, shrinkage: float) -> Discriminant:
    """`count` directions, whitened by the covariance `within` (D, D): first those that tell classes apart."""
    means = moments.means()[moments.count > 0]
    # Images that repeat have no spread but that of rounding, which is no covariance.
    rounding = 1e-9 * moments.square.diagonal().mean() / moments.count.sum()
    spread = within.diagonal().mean().clamp_min(rounding).clamp_min(1e-12)
    isotropic = spread * torch.eye(len(within), dtype=within.dtype)
    factor = torch.linalg.cholesky((1 - shrinkage) * within + shrinkage * isotropic)
    centre = means.mean(0)
    white = torch.linalg.solve_triangular(factor, (means - centre).T, upper=False).T  # (C, D)
    leading = torch.linalg.svd(white, full_matrices=count > len(white)).Vh[:count]
    directions = torch.linalg.solve_triangular(factor.T, leading.T, upper=True).T
    return Discriminant(centre.float(), directions.float())


@torch.no_grad()
def start_as_discriminant(
    network: DProtoNet, views: ViewSource, *, seed: int, batch: int = 60, device: torch.device
) -> None:
    """Set the shaping net to the discriminant of the training views, at a scale where similarity is steep.

    Unstated: how the shaping net starts. Ours starts so, because random weights need more epochs and
    do not get as far (docs/masks.md); the recipe of the paper starts at random.
    Occurrence maps (XProtoNet) start as they would: only the features beside them become the discriminant.
    """
    shaping = features_shaping(network)
    was_training = network.training
    network.eval()
    moments = _moments(network, views, batch=batch, device=device)
    found = fisher_discriminant(moments, count=shaping.most_directions)
    shaping.start_linear(found.centre, found.directions, seed=derived_seed(seed, 0))
    if not shaping.linear_end:
        shaping.scale(_STRAIGHT)
    network.initialise_prototypes(drawn_vectors(network, views, seed=seed, batch=batch, device=device))
    factor = _own_distance(network, views, batch=batch, device=device) ** -0.5
    if not shaping.linear_end:  # prototypes are sigmoids: what they are of shall be about 1 at most
        factor = min(factor, 1 / network.prototypes.vectors.logit().square().mean().sqrt().item())
    shaping.scale(factor)
    network.train(was_training)


def drawn_vectors(
    network: DProtoNet, views: ViewSource, *, seed: int, batch: int = 60, device: torch.device
) -> Tensor:
    """Where prototypes begin once the shaping net is a discriminant, (P, D).

    Unstated: which place a prototype starts at. One drawn by lot is mostly background, where the discriminant
    says nothing: where regions are places, the one that tells the class best (docs/rivals.md).
    """
    places = isinstance(network.encoder.regions, (Points, Patches))
    draw = telling_vectors if places else starting_vectors
    return draw(network, views, seed=seed, batch=batch, device=device)


def features_shaping(network: DProtoNet) -> Shaping:
    """What shapes the features that prototypes are compared with; occurrence maps stand beside it."""
    shaping = network.encoder.shaping
    if isinstance(shaping, Beside):
        shaping = shaping.features
    if not isinstance(shaping, Shaping):
        raise TypeError("a network of parts starts by start_parts_as_discriminants")
    return shaping


def _moments(network: DProtoNet, views: ViewSource, *, batch: int, device: torch.device) -> Moments:
    """Of the globally averaged features of all cached variants, or of the plain images alone."""
    keys = every_view(views)
    if label_tensor(views.labels).ndim == 2:
        return _label_moments(_pooled(network, views, keys, batch=batch, device=device))
    centres = _centres(network, views, batch=batch, device=device)  # (C, parts, D)
    classes, parts, dimension = centres.shape
    moments = ClassMoments(classes * parts, dimension)
    for pooled, labels in _pooled(network, views, keys, batch=batch, device=device):
        nearest = (pooled.unsqueeze(1) - centres[labels]).square().sum(-1).argmin(1)
        moments.update(pooled, labels * parts + nearest)
    return moments


def _label_moments(batches: Iterator[tuple[Tensor, Tensor]]) -> LabelMoments:
    """Where images have several labels; what these have in common is not divided into parts."""
    moments: LabelMoments | None = None
    for pooled, labels in batches:
        moments = moments or LabelMoments(labels.shape[1], pooled.shape[1])
        moments.update(pooled, labels)
    assert moments is not None
    return moments


def every_view(views: ViewSource) -> Keys:
    """All cached variants, or the plain images alone."""
    return Keys.each(range(len(views)), 1 + (views.augmentations or 0))


def parts_of_a_class(labels: Sequence[int]) -> int:
    """Into how many parts classes are divided so that they have `_DIRECTIONS` directions; 1 if they have."""
    counts = torch.bincount(torch.as_tensor(labels))
    wanted = -(-(_DIRECTIONS + 1) // len(counts))
    return max(1, min(wanted, int(counts.min()) // _IN_A_PART))


def _centres(network: DProtoNet, views: ViewSource, *, batch: int, device: torch.device) -> Tensor:
    """The parts of every class by k-means on some of its plain images, (C, parts, D)."""
    parts, labels = parts_of_a_class(views.labels), torch.as_tensor(views.labels)
    rows = [(labels == label).nonzero().squeeze(1) for label in range(int(labels.max()) + 1)]
    some = 1 if parts == 1 else _CLUSTERED  # a single part needs no centre: any will do
    keys = [(index, 0) for row in rows for index in row[:: -(-len(row) // some)].tolist()]
    found = list(_pooled(network, views, keys, batch=batch, device=device))
    pooled, labels = torch.cat([item[0] for item in found]), torch.cat([item[1] for item in found])
    return torch.stack([k_means(pooled[labels == label], parts) for label in range(len(rows))])


def k_means(vectors: Tensor, count: int, rounds: int = 20) -> Tensor:
    """Centres (count, D) of vectors (N, D), from starts that lie far apart; the same each time."""
    centres = vectors[:1]
    while len(centres) < count:
        farthest = torch.cdist(vectors, centres).amin(1).argmax()
        centres = torch.cat([centres, vectors[farthest].unsqueeze(0)])
    for _ in range(rounds if count > 1 else 0):
        nearest = torch.cdist(vectors, centres).argmin(1)
        members = torch.nn.functional.one_hot(nearest, count).to(vectors.dtype)  # (N, count)
        size = members.sum(0).unsqueeze(1)
        centres = torch.where(size > 0, members.T @ vectors / size.clamp_min(1), centres)
    return centres


def _pooled(
    network: DProtoNet, views: ViewSource, keys: Sequence[Key], *, batch: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Globally averaged features (B, D) and labels (B,), on the CPU."""
    for view in _batches(views, keys, batch):
        pooled = network.encoder.backbone(view.inputs.to(device)).float().mean(dim=(-2, -1))
        yield pooled.cpu(), torch.as_tensor(view.label)


def _own_distance(network: DProtoNet, views: ViewSource, *, batch: int, device: torch.device) -> float:
    """The median distance between images and prototypes of their class.

    With one or two images a class most are of the image that the prototype started from, which say nothing:
    then these are left out, and if none is left, the distance to other classes counts.
    """
    step = -(-len(views) // _LOOKED_AT)
    own, other = [], []
    for view in _batches(views, [(index, 0) for index in range(0, len(views), step)], batch):
        distances = network.evidence(view.inputs.to(device)).distances
        same = own_prototypes(torch.as_tensor(view.label).to(device), network.prototype_class)
        own.append(distances[same])
        other.append(distances[~same])
    near, far = torch.cat(own), torch.cat(other).median()
    if near.median() <= _SOURCE * far:
        near = near[near > _SOURCE * far]
    found = (near.median() if len(near) else far).item()
    return found if found > 0 else 1.0  # images that are all alike leave nothing to measure


def _batches(views: ViewSource, keys: Sequence[Key], batch: int) -> Iterator[View]:
    return load(views, chunks(keys, batch), workers=0)
