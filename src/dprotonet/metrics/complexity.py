"""How simple is a map? Its entropy and its sparseness; neither asks the network.

A map that says little can be read at a glance, be it right or wrong: read these beside what asks the network.
"""

import torch
from torch import Tensor

from dprotonet.metrics.guards import check_heat, check_maps, widened


def entropy(heatmaps: Tensor) -> Tensor:
    """Of the heat as a distribution over pixels, in nats (N,): complexity of Bhatt et al. (2020).

    Lower is simpler: from 0, all heat on one pixel, to log(H · W), the same everywhere; NaN without heat.
    """
    share = _shares(heatmaps)
    return -(share * share.clamp_min(torch.finfo(share.dtype).tiny).log()).sum(dim=1)


def sparseness(heatmaps: Tensor) -> Tensor:
    """Gini index of the heat (N,), Chalasani et al. (2020): 0 if the same everywhere, 1 for one pixel."""
    heat = _shares(heatmaps).sort(dim=1).values
    count = heat.shape[1]
    place = 2 * torch.arange(1, count + 1, device=heat.device) - count - 1
    return (place * heat).sum(dim=1) / count


def discrete_entropy(maps: Tensor, *, bins: int = 100) -> Tensor:
    """Of the histogram of a map's values between its lowest and highest, in nats (N,)."""
    check_maps(maps)
    values = widened(maps).flatten(1)
    low, high = values.amin(dim=1, keepdim=True), values.amax(dim=1, keepdim=True)
    span = (high - low).where(high > low, 1.0)
    bin_of = ((values - low) / span * bins).long().clamp_max(bins - 1)
    counts = torch.zeros(len(values), bins, device=values.device).scatter_add_(
        1, bin_of, torch.ones_like(values, dtype=torch.float)
    )
    share = counts / counts.sum(dim=1, keepdim=True)
    return -(share * share.clamp_min(torch.finfo(share.dtype).tiny).log()).sum(dim=1)


def _shares(heatmaps: Tensor) -> Tensor:
    check_maps(heatmaps, "heatmaps")
    check_heat(heatmaps, "complexity")
    heat = widened(heatmaps).flatten(1)
    total = heat.sum(dim=1, keepdim=True)
    return (heat / total).where(total > 0, torch.nan)
