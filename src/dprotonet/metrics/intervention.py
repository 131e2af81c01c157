"""Truth by intervention: a part matters as much as the class's logit falls when that part alone is changed.

A renderer draws an image once more with one of its K parts exchanged or removed; what the network then says
is compared with where a heatmap has its heat (after FunnyBirds, Hesse et al., 2023). Pure functions, for any
network and any renderer. Heatmaps are (N, H, W), parts bool (N, K, H, W). A part without pixels is not to be
seen: it has neither heat nor importance, both NaN, and is left out of everything. What is undefined is NaN.

Controls go through the same functions: a map of ones has the area of a part as its sum; `controls` has more.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from dprotonet.metrics.guards import check_heat, check_numbers
from dprotonet.metrics.prototypes import check_parts
from dprotonet.metrics.randomisation import rank_correlation


class PartHeat(NamedTuple):
    """Heat on each part, both (N, K) in float64: all of it, and per pixel of the part. NaN where unseen."""

    total: Tensor
    mean: Tensor


class SiblingContrast(NamedTuple):
    """What happened when the deciding part became the sibling's, each (N,); see `sibling_contrast`."""

    own_fell: Tensor
    sibling_rose: Tensor
    margin_share: Tensor
    turned: Tensor


def importance(before: Tensor, after: Tensor) -> Tensor:
    """How far a value falls when a part is changed: mean over E changes of before − after, (N, K).

    `before` (N,) is of the images as they are, `after` (N, K, E) of each image with each part changed in E
    ways; the value is the logit of the class that is explained, its lead over another class's, or one
    prototype's contribution. A change that was not made is NaN in `after` and left out of the mean; without
    any, importance is NaN. Negative where the change speaks *for* the class.
    """
    if after.ndim != 3 or before.shape != after.shape[:1]:
        shapes = f"before {tuple(before.shape)} against after {tuple(after.shape)}"
        raise ValueError(f"{shapes}; they must be (N,) and (N, K, E)")
    check_numbers(before, "values before")
    return (before.double()[:, None, None] - after.double()).nanmean(dim=2)


def part_heat(heatmaps: Tensor, parts: Tensor) -> PartHeat:
    """Sum and mean of the heat on each part."""
    check_parts(heatmaps, parts)
    check_heat(heatmaps, "heat on parts")
    area = parts.flatten(2).sum(dim=2)
    total = torch.einsum("nhw,nkhw->nk", heatmaps.double(), parts.double())
    total = total.masked_fill(area == 0, torch.nan)
    return PartHeat(total, total / area)


def part_correlation(heat: Tensor, importance: Tensor) -> Tensor:
    """Spearman's coefficient over the parts of each image, ties averaged; (N,) of (N, K) and (N, K).

    Only parts count that have both heat and importance. NaN where fewer than two are left, or where all of
    them have the same heat or the same importance.
    """
    _check_alike(heat, importance)
    return torch.stack([_correlation(*pair) for pair in zip(heat.double(), importance.double(), strict=True)])


def top_part_right(heat: Tensor, importance: Tensor) -> Tensor:
    """1 where the part with the most heat is the most important one, else 0; (N,) of (N, K) and (N, K).

    Where several parts share the first place in heat, the share of them that is most important: the chance of
    naming it right by lot. NaN where fewer than two parts have both heat and importance.
    """
    _check_alike(heat, importance)
    known = ~(heat.isnan() | importance.isnan())
    hottest, weightiest = (_first(values.double(), known) for values in (heat, importance))
    right = (hottest & weightiest).sum(dim=1) / hottest.sum(dim=1)
    return right.double().masked_fill(known.sum(dim=1) < 2, torch.nan)


def hottest_part(heat: Tensor) -> Tensor:
    """Number of the part with the most heat, the first of equals, -1 where no part is seen; (…) of (…, K)."""
    part = heat.nan_to_num(nan=-torch.inf).argmax(dim=-1)
    return part.masked_fill(heat.isnan().all(dim=-1), -1)


def named_by_rows(row_heat: Tensor, part: Tensor, *, rows: int) -> Tensor:
    """1 where the part (N,) is the hottest of one of the first `rows` rows, else 0; NaN where it is unseen.

    `row_heat` (N, R, K) is the heat on parts of the R rows of an explanation, the strongest first. By the
    mean heat a small part has as good a chance as a large one; by the sum the largest nearly always wins.
    """
    if row_heat.ndim != 3 or part.shape != row_heat.shape[:1]:
        shapes = f"row_heat {tuple(row_heat.shape)} against part {tuple(part.shape)}"
        raise ValueError(f"{shapes}; they must be (N, R, K) and (N,)")
    if not 1 <= rows <= row_heat.shape[1]:
        raise ValueError(f"rows is {rows}; an explanation here has 1 to {row_heat.shape[1]}")
    named = (hottest_part(row_heat[:, :rows]) == part.unsqueeze(1)).any(dim=1).double()
    asked = row_heat.gather(2, part[:, None, None].expand(-1, row_heat.shape[1], 1))
    return named.masked_fill(asked.isnan().all(dim=1).squeeze(1), torch.nan)


def sibling_contrast(
    before: Tensor,
    after: Tensor,
    *,
    weight: Tensor,
    prototype_class: Tensor,
    label: Tensor,
    sibling: Tensor,
) -> SiblingContrast:
    """Does the evidence move to the sibling's prototypes when a part becomes as the sibling has it?

    Scores g (N, P) of the image before and after, the head's weight (C, P), and for each image its class a,
    `label` (N,), and the sibling b. A class's evidence is what its own prototypes say for it,
    E_c = Σ_{p of c} w_cp g_p; the margin is M = logit_a − logit_b over all prototypes.

    own_fell = E_a(before) − E_a(after) and sibling_rose = E_b(after) − E_b(before), in units of the logit;
    their sum is how far the evidence moved. margin_share = (M(before) − M(after)) / M(before): 0 where
    nothing happened, 1 where the network can no longer tell, 2 where it is as sure of the sibling; cut to
    [−2, 2], for a small margin would outweigh all other images. turned = 1 where M(after) < 0, the sibling is
    now preferred. The last two are NaN where M(before) ≤ 0: there the sibling was preferred before.
    """
    if before.ndim != 2 or before.shape != after.shape or weight.shape[1:] != before.shape[1:]:
        shapes = f"scores {tuple(before.shape)} and {tuple(after.shape)}, weight {tuple(weight.shape)}"
        raise ValueError(f"{shapes}; they must be (N, P), (N, P) and (C, P)")
    own, other = (weight.double()[classes] for classes in (label, sibling))
    first, second = before.double(), after.double()
    change = second - first
    ours, theirs = (prototype_class == classes.unsqueeze(1) for classes in (label, sibling))
    margin, later = (((own - other) * scores).sum(dim=1) for scores in (first, second))
    unsure = margin <= 0
    return SiblingContrast(
        own_fell=-(own * change * ours).sum(dim=1),
        sibling_rose=(other * change * theirs).sum(dim=1),
        margin_share=((margin - later) / margin).clamp(-2, 2).masked_fill(unsure, torch.nan),
        turned=(later < 0).double().masked_fill(unsure, torch.nan),
    )


def _correlation(heat: Tensor, importance: Tensor) -> Tensor:
    known = ~(heat.isnan() | importance.isnan())
    if known.sum() < 2:
        return torch.tensor(torch.nan, dtype=torch.double, device=heat.device)
    return rank_correlation(heat[known][None, None], importance[known][None, None])[0]


def _first(values: Tensor, known: Tensor) -> Tensor:
    """Which of the known values (N, K) are the largest of their row."""
    kept = values.masked_fill(~known, -torch.inf)
    return (kept == kept.amax(dim=1, keepdim=True)) & known


def _check_alike(heat: Tensor, importance: Tensor) -> None:
    if heat.ndim != 2 or heat.shape != importance.shape:
        shapes = f"heat {tuple(heat.shape)} against importance {tuple(importance.shape)}"
        raise ValueError(f"{shapes}; both must be (N, K)")
