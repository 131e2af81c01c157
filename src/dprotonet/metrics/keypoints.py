"""Where keypoints of parts are known: is a prototype always at the same one, also under noise?

Consistency and stability of Huang et al. (2023, "Evaluation and Improvement of Interpretability for
Self-Explainable Part-Prototype Networks"), as their published code computes them: a box of 72/224 of the side
round the hottest pixel of a prototype's map; a keypoint inside it is covered. Purity of Nauta et al. (2023,
PIP-Net): the same with patches of 32/224 on the ten images in which the prototype is strongest.

Points (N, 2) are x, y of hottest pixels, `size` is height and width of the image; keypoints (N, K, 2) are
x, y in pixels, NaN where the part is not to be seen.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from dprotonet.metrics.guards import check_maps
from dprotonet.metrics.prototypes import Consistency, usual_part

BOX = 72 / 224
"""Side of the box round a peak, as a share of the image's."""
PATCH = 32 / 224
"""Side of PIP-Net's image patches, as a share of the image's."""

Size = tuple[int, int]


def peaks(maps: Tensor) -> Tensor:
    """x and y of the hottest pixel of maps (N, H, W), the first of equals; int64 (N, 2)."""
    check_maps(maps)
    place = maps.flatten(1).argmax(dim=1)
    return torch.stack([place % maps.shape[2], place // maps.shape[2]], dim=1)


def centroids(parts: Tensor) -> Tensor:
    """The middles of parts, bool (N, K, H, W), as keypoints (N, K, 2); NaN for one that has no pixels."""
    if parts.ndim != 4 or parts.dtype != torch.bool:
        raise ValueError(f"parts are {tuple(parts.shape)} {parts.dtype}; they must be bool (N, K, H, W)")
    weight, (height, width) = parts.double(), parts.shape[2:]
    count = weight.sum(dim=(2, 3))
    rows, columns = (torch.arange(length, device=parts.device) + 0.5 for length in (height, width))
    x, y = (weight.sum(dim=2) * columns).sum(dim=2), (weight.sum(dim=3) * rows).sum(dim=2)
    return torch.stack([x, y], dim=2) / count.unsqueeze(2)


def in_box(points: Tensor, keypoints: Tensor, *, size: Size, box: float = BOX) -> Tensor:
    """Whether each keypoint's pixel lies in the box round a point, its edges included; bool (N, K)."""
    _check(points, keypoints)
    reach = torch.tensor([round(box * length / 2) for length in reversed(size)], device=points.device)
    away = (keypoints.floor() - points.unsqueeze(1)).abs()  # NaN is never within
    return (away <= reach).all(dim=2)


def keypoint_consistency(
    points: Tensor,
    keypoints: Tensor,
    prototype: Tensor,
    *,
    size: Size,
    threshold: float = 0.8,
    prototypes: int | None = None,
) -> Consistency:
    """Is a prototype always on the same keypoint? Over images of its class; `prototype` (N,) names it.

    Of the images that show a part, in which share it is covered; the largest share over parts counts, and
    from `threshold` on the prototype is consistent. Huang's score is the share of consistent ones.
    """
    covered = in_box(points, keypoints, size=size)
    return usual_part(covered, _visible(keypoints), prototype, threshold=threshold, prototypes=prototypes)


def keypoint_stability(before: Tensor, after: Tensor, keypoints: Tensor, *, size: Size) -> Tensor:
    """1 where exactly the same keypoints are covered after noise as before, none at all included (N,).

    NaN where the image shows no part. Huang's noise has a standard deviation of 0.2 as the network sees
    images, cut at 0.25.
    """
    same = (in_box(before, keypoints, size=size) == in_box(after, keypoints, size=size)).all(dim=1)
    return same.double().masked_fill(~_visible(keypoints).any(dim=1), torch.nan)


def purity(
    points: Tensor, keypoints: Tensor, prototype: Tensor, *, size: Size, same: Sequence[int] | None = None
) -> Consistency:
    """Share of a prototype's patches that contain its purest part; points in its strongest images.

    `same` (K,) numbers the parts so that left and right ones, which PIP-Net takes for one, are equal.
    """
    covered, visible = in_box(points, keypoints, size=size, box=PATCH), _visible(keypoints)
    groups = torch.as_tensor(range(keypoints.shape[1]) if same is None else same, device=points.device)
    together = torch.nn.functional.one_hot(groups).double()  # (K, parts)
    covered, visible = ((flags.double() @ together) > 0 for flags in (covered, visible))
    return usual_part(covered, visible, prototype, threshold=0.5)


def sides_merged(names: Sequence[str]) -> list[int]:
    """For `purity`: one number for a part whose name is another's but for left and right."""
    plain = [" ".join(word for word in name.split() if word not in ("left", "right")) for name in names]
    return [plain.index(name) for name in plain]


def _visible(keypoints: Tensor) -> Tensor:
    return ~keypoints.isnan().any(dim=2)


def _check(points: Tensor, keypoints: Tensor) -> None:
    fits = points.ndim == 2 and points.shape[1] == 2
    if not fits or keypoints.ndim != 3 or keypoints.shape[::2] != points.shape or not keypoints.shape[1]:
        shapes = f"points {tuple(points.shape)} against keypoints {tuple(keypoints.shape)}"
        raise ValueError(f"{shapes}; they must be (N, 2) and (N, K, 2)")
