"""Is a map steady, and does it need the network? What a method does to other inputs and to other weights.

Max-sensitivity explains images that nobody could tell from the first. Efficient MPRT (Hedström et al., 2024)
explains by a network whose weights were all drawn anew: its maps should be less ordered than the first.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from dprotonet.metrics.complexity import discrete_entropy
from dprotonet.metrics.guards import check_maps

Explain = Callable[[Tensor], Tensor]
"""Images (N, C, H, W) to their maps (N, H, W), of the classes that were explained at first."""


def max_sensitivity(
    explain: Explain,
    images: Tensor,
    maps: Tensor,
    *,
    draws: int = 10,
    radius: float = 0.02,
    seed: int = 0,
) -> Tensor:
    """The largest ‖map of the disturbed image − map‖ / ‖map‖ over `draws` disturbances (N,): lower is better.

    As Yeh et al. (2019) and captum: uniform within ± `radius`, in the space of the images as the network sees
    them; 10 draws there. One disturbance serves all images. `draws` explanations. NaN for a map of zeros.
    """
    check_maps(maps)
    if draws < 1 or radius < 0:
        raise ValueError(f"draws is {draws} and radius {radius}: 1 or more, and not negative, are possible")
    generator = torch.Generator().manual_seed(seed)
    size = maps.flatten(1).norm(dim=1)
    worst = torch.zeros_like(size)
    for _ in range(draws):
        disturbed = images + radius * (2 * torch.rand(images.shape[1:], generator=generator) - 1).to(images)
        change = (explain(disturbed) - maps).flatten(1).norm(dim=1)
        worst = torch.maximum(worst, change)
    return (worst / size).where(size > 0, torch.nan)


def efficient_mprt(maps: Tensor, random_maps: Tensor) -> Tensor:
    """How far the entropy of a map rises, as a share of its own, when the network knows nothing (N,).

    `random_maps` are those by a network of random weights. Higher is better; near 0 where the map does not
    care. Entropy is that of the histogram of values; NaN where the map has none, being of one value.
    """
    before, after = discrete_entropy(maps), discrete_entropy(random_maps)
    return ((after - before) / before).where(before > 0, torch.nan)
