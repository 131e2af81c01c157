"""Is the heat as large as what it is worth? SaCo and infidelity look at amounts, not at ranks alone.

Both hide parts of the image and compare what the class loses with the heat that was on them. SaCo compares
groups of pixels of falling heat pair by pair; infidelity squares at random places, by squared difference.
"""

import torch
from torch import Tensor

from dprotonet.metrics.curves import Score
from dprotonet.metrics.guards import check_pair, widened
from dprotonet.metrics.ranking import ranks
from dprotonet.metrics.references import mean_colour
from dprotonet.metrics.space import blank


@torch.no_grad()
def saco(
    score: Score, images: Tensor, maps: Tensor, heatmaps: Tensor, *, groups: int = 10, batch: int = 16
) -> Tensor:
    """Salience-guided faithfulness coefficient (Wu et al., CVPR 2024), in [-1, 1], (N,): higher is better.

    Pixels fall into `groups` of equal size by the raw map. Of every pair the hotter should lose more when it
    becomes the image's mean colour: if so the difference of their heat is added, if not it is taken away, and
    the sum is divided by that of the amounts. NaN where all groups are equally hot. `groups` + 1 passes.
    """
    check_pair(images, maps)
    if groups < 2:
        raise ValueError(f"groups is {groups}; at least 2 are compared")
    group = ranks(maps) * groups // maps[0].numel()  # (N, H, W), 0 the hottest
    member = group.unsqueeze(1) == torch.arange(groups, device=maps.device).view(1, -1, 1, 1)
    lost = _losses(score, images, member, mean_colour(images), batch)
    heat = (widened(heatmaps).unsqueeze(1) * member).flatten(2).sum(dim=2)
    more = heat.unsqueeze(2) - heat.unsqueeze(1)  # (N, K, K): how much hotter the first is
    as_told = lost.unsqueeze(2) >= lost.unsqueeze(1)
    pairs = torch.ones(groups, groups, device=maps.device).triu(1).bool()
    signed = torch.where(as_told, more, -more)[:, pairs]
    total = signed.abs().sum(dim=1)
    return torch.where(total > 0, signed.sum(dim=1) / total, torch.nan)


@torch.no_grad()
def infidelity(
    score: Score,
    images: Tensor,
    maps: Tensor,
    *,
    fill: Tensor | None = None,
    draws: int = 25,
    share: float = 0.25,
    seed: int = 0,
    batch: int = 16,
) -> Tensor:
    """Mean square of (β · heat on what is hidden − what the class loses) (N,): lower is better.

    Infidelity of Yeh et al. (2019) as captum computes it with `normalize=True`: what is perturbed is whether
    a pixel is shown, and β makes the best of the map's scale. Hidden are `draws` squares of a `share` of
    either side at random places, the same for all maps. `draws` + 1 passes.
    """
    check_pair(images, maps)
    if draws < 1 or not 0 < share < 1:
        raise ValueError(f"draws is {draws} and share {share}: 1 or more, and between 0 and 1, are possible")
    hidden = squares(draws, (maps.shape[-2], maps.shape[-1]), share=share, seed=seed).to(maps.device)
    every = hidden.unsqueeze(0).expand(len(images), -1, -1, -1)
    lost = _losses(score, images, every, blank(images, fill), batch)
    heat = widened(maps).flatten(1) @ hidden.flatten(1).to(widened(maps)).T  # (N, draws)
    scale = (heat * lost).sum(dim=1) / heat.square().sum(dim=1)
    scale = scale.where(heat.square().sum(dim=1) > 0, 0.0)
    return (scale.unsqueeze(1) * heat - lost).square().mean(dim=1)


def squares(count: int, size: tuple[int, int], *, share: float, seed: int) -> Tensor:
    """Where random squares lie, bool (count, H, W)."""
    generator = torch.Generator().manual_seed(seed)
    strips = []
    for side in size:
        width = max(1, round(share * side))
        start = torch.randint(side - width + 1, (count, 1), generator=generator)
        places = torch.arange(side)
        strips.append((places >= start) & (places < start + width))
    return strips[0].unsqueeze(2) & strips[1].unsqueeze(1)


def _losses(score: Score, images: Tensor, hidden: Tensor, instead: Tensor, batch: int) -> Tensor:
    """What each image loses when parts (N, K, H, W) bool become what is `instead`, (N, K)."""
    count, parts = hidden.shape[:2]
    found = []
    for row in range(count):
        told = []
        shown = torch.cat([torch.zeros_like(hidden[row, :1]), hidden[row]])  # the whole image first
        for some in shown.split(batch):
            rows = torch.full((len(some),), row, device=images.device)
            told.append(widened(score(torch.where(some.unsqueeze(1), instead[row], images[row]), rows)))
        scores = torch.cat(told)
        found.append(scores[0] - scores[1:])
    return torch.stack(found).view(count, parts)
