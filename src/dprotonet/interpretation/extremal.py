"""Extremal perturbation (Fong et al., 2019): the part of a fixed size that keeps the node most active.

Areas are given, not weighed: the sorted mask is drawn to a template that is 1 on that share and 0 elsewhere.
Masks are smooth because each place takes the (smooth) largest of what the coarse values around it say under a
bell. One mask for each of several areas, summed: what is needed first is hottest.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad, unfold

from dprotonet.errors import UserError
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.borrowed import borrowed, differentiable
from dprotonet.interpretation.explainer import Explainer, Question, maps_explained
from dprotonet.interpretation.kept_activation import KeptActivation
from dprotonet.interpretation.masking_task import MaskingTask
from dprotonet.interpretation.outputs import GivenTask, Model
from dprotonet.interpretation.returned import OutputName
from dprotonet.ops import unit_range, upsample

_TEMPERATURE = 20.0  # of the smooth maximum; the authors' code
_REACH = 2  # standard deviations out to which a coarse value is felt
_GROWTH = 100.0  # by which the weight of the area rises over the steps; 16 in the authors' code


class Extremal(Explainer):
    """Learns a mask for each of `areas`, preserving the node, in `steps` steps forward and backward each.

    The mask has `side` × `side` values under bells of `spread` cells, and is enlarged to the image. The node
    counts by its share (`KeptActivation`), so that `weight`, of the area at first, fits every node.
    Deviation: hidden is blank, where the paper blurs, so that all explainers here hide alike; Adam instead of
    descent with momentum, a weight that starts lower, so that the node and not chance chooses the
    place, and 150 steps instead of 800.
    """

    def __init__(  # noqa: PLR0913 - what is learned, and what every explainer takes
        self,
        model: Model | None = None,
        *,
        areas: Sequence[float] = (0.05, 0.1, 0.2, 0.4),
        steps: int = 150,
        side: int = 28,
        spread: float = 2.5,
        weight: float = 1.0,
        rate: float = 0.05,
        classes: Sequence[str] = (),
        task: GivenTask = None,
        output: OutputName = None,
        internal_batch_size: int = 32,
    ) -> None:
        super().__init__(model, classes=classes, task=task, output=output, batch=internal_batch_size)
        if not areas or not all(0 < area < 1 for area in areas) or steps < 1 or side < 2:
            raise UserError(
                f"extremal perturbation with areas {tuple(areas)}, {steps} steps, side {side}: "
                "areas between 0 and 1, 1 step and a side of 2 at least are possible"
            )
        self.areas, self.steps, self.side = tuple(areas), steps, side
        self.spread, self.weight, self.rate = spread, weight, rate

    def explained(self, question: Question) -> list[Explanation]:
        task = question.task()
        with borrowed(task.node.model), differentiable():
            kept = KeptActivation.of(task)
            kept.warn(task)
            raw = torch.stack([self._map(task, kept, row) for row in range(task.count)])
        facts = {"preset": "extremal", "settings": self._settings()}
        heatmaps = unit_range(raw).where((kept.scale != 0).view(-1, 1, 1), 0.0)
        return maps_explained(question, raw, passes=task.passes, facts=facts, heatmaps=heatmaps)

    def _settings(self) -> dict[str, object]:
        numbers = {"steps": self.steps, "side": self.side, "spread": self.spread}
        return {"areas": list(self.areas), **numbers, "weight": self.weight, "rate": self.rate}

    def _map(self, task: MaskingTask, kept: KeptActivation, row: int) -> Tensor:
        """The mean of the learned masks (H, W)."""
        device = task.images.device
        values = torch.full((len(self.areas), self.side, self.side), 0.5, device=device, requires_grad=True)
        wanted = templates(self.areas, self.side**2).to(device)
        optimiser = torch.optim.Adam([values], lr=self.rate)
        for step in range(self.steps):
            masks = smooth_largest(values, self.spread)
            area = (masks.flatten(1).sort(dim=1).values - wanted).square().mean(dim=1)
            weight = self.weight * _GROWTH ** (step / self.steps)
            loss = weight * area.sum() - self._kept(task, kept, row, upsample(masks, task.size)).sum()
            (values.grad,) = torch.autograd.grad(loss, values)
            task.count_backward(len(masks))
            optimiser.step()
            with torch.no_grad():
                values.clamp_(0, 1)
        with torch.no_grad():
            return upsample(smooth_largest(values, self.spread), task.size).mean(dim=0)

    def _kept(self, task: MaskingTask, kept: KeptActivation, row: int, masks: Tensor) -> Tensor:
        """The share of the node under each mask (A,)."""
        shares = []
        for some in masks.split(task.batch):
            rows = torch.full((len(some),), row, device=masks.device)
            activation = task.activation(task.images[row] * some.unsqueeze(1), rows)
            if not activation.requires_grad:
                raise UserError(f"{task.node.name(row)} has no gradient; explain it by occlusion or by RISE")
            shares.append(kept(activation, rows))
        return torch.cat(shares)


def templates(areas: Sequence[float], places: int) -> Tensor:
    """What sorted masks of those areas are: zeros, then ones; (A, places)."""
    ones = torch.tensor([round(area * places) for area in areas]).unsqueeze(1)
    return (torch.arange(places) >= places - ones).float()


def smooth_largest(values: Tensor, spread: float) -> Tensor:
    """The smooth largest value around each place, under a bell of `spread` cells; (A, s, s) to the same.

    The bell is 1 within half a standard deviation, and beyond the image there is nothing.
    """
    reach = max(1, round(_REACH * spread))
    offsets = torch.arange(-reach, reach + 1, device=values.device, dtype=values.dtype)
    distance = (offsets[:, None].square() + offsets.square()).sqrt() / spread
    bell = (-2 * (distance - 0.5).clamp_min(0).square()).exp().flatten().view(1, -1, 1)
    around = unfold(pad(values.unsqueeze(1), (reach,) * 4), 2 * reach + 1)  # (A, window, s²)
    felt = bell * around
    return ((_TEMPERATURE * felt).softmax(dim=1) * felt).sum(dim=1).view_as(values)
