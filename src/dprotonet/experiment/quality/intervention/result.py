"""What interventions showed: values of every image, their means with intervals, as plain numbers for JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dprotonet.experiment.compare.table import plain
from dprotonet.metrics.comparison import mean_interval, paired_bootstrap
from dprotonet.metrics.intervention import (
    PartHeat,
    SiblingContrast,
    named_by_rows,
    part_correlation,
    top_part_right,
)

EXCHANGE = "exchange"  # forms of the truth: a part is exchanged, and the class's logit falls
LEAD = "exchange, lead"  # the same pictures, and its lead over the likeliest other class falls
REMOVAL = "removal"
AREA = "area"  # the control that all others are compared with, image by image
CONTROLS = ("centre", "random", AREA)
ROWS = "rows"  # of the evidence, joined by contribution
ROWS_BY_LEAD = "rows by lead"  # joined by lead over the likeliest other class
SINGLE_ROWS = "single rows"  # each against the class's logit; the mean over them
OWN_SCORES = "single rows, own score"  # each against its own contribution
OWN_AREA = "area, rows' own score"
TRUTH_AGAIN = "truth again"  # importances of a second draw, as if they were an explainer's heat
_NAMED = (1, 3, 5)  # of how many rows one may name the deciding part


class NamedPart(NamedTuple):
    """The deciding part, -1 for none, and heat (R, K) of rows on all parts, by whose they are."""

    part: int
    heat: Mapping[str, Tensor]


class Examined(NamedTuple):
    """One image: the heat on its K parts and the truth about them, by form of intervention."""

    name: str
    parts: tuple[str, ...]
    heat: Mapping[str, PartHeat]  # by explainer, (K,) each
    row_heat: PartHeat  # (R, K)
    falls: Mapping[str, Tensor]  # of the class's logit or lead (K,)
    falls_again: Mapping[str, Tensor]  # by a second draw (K,), of the forms that are drawn
    row_falls: Mapping[str, Tensor]  # of each row's contribution (R, K), of the forms about the logit
    contrast: Mapping[str, SiblingContrast]  # () each; empty where there is no sibling
    named: NamedPart


@dataclass(frozen=True, eq=False)
class Agreement:
    """One explainer against one form of intervention: values (N,) of the images, NaN where undefined."""

    correlation_sum: Tensor
    correlation_mean: Tensor
    top_sum: Tensor
    top_mean: Tensor

    @classmethod
    def of(cls, heat: PartHeat, truth: Tensor) -> "Agreement":
        """Heat and truth (N, R, K); values of an image are the mean over its R rows."""
        total, mean, rows = (values.flatten(0, 1) for values in (*heat, truth))
        found = (
            part_correlation(total, rows),
            part_correlation(mean, rows),
            top_part_right(total, rows),
            top_part_right(mean, rows),
        )
        return cls(*(values.reshape(truth.shape[:2]).nanmean(dim=1) for values in found))


@dataclass(frozen=True, eq=False)
class InterventionResult:
    """Agreement by form of intervention and explainer, and what else the changed pictures told.

    `importance` is how far the predicted class's logit or lead falls, by form and part; `contrast` what
    happens to the evidence when the deciding part becomes the sibling's, and when another part is exchanged;
    `deciding` whether rows name the deciding part, by group of images, by whose rows, by how many of them.
    """

    facts: Mapping[str, Any]
    images: tuple[str, ...]
    agreement: Mapping[str, Mapping[str, Agreement]]
    importance: Mapping[str, Mapping[str, Tensor]]
    contrast: Mapping[str, SiblingContrast]
    deciding: Mapping[str, Mapping[str, Mapping[int, Tensor]]]

    def summary(self) -> dict[str, Any]:
        """Means with 95 % bootstrap intervals over images; None where undefined."""
        return {
            **self.facts,
            "images": list(self.images),
            "agreement": {form: self._agreement(form) for form in self.agreement},
            "importance": {form: _cells(found) for form, found in self.importance.items()},
            "contrast": {what: _cells(found._asdict()) for what, found in self.contrast.items()},
            "deciding part named": {
                group: {
                    whose: _cells({f"first {n}": values for n, values in counts.items()})
                    for whose, counts in found.items()
                }
                for group, found in self.deciding.items()
            },
        }

    def _agreement(self, form: str) -> dict[str, Any]:
        """Every explainer's cells, each also as the paired difference to what the area alone has."""
        found = self.agreement[form]
        cells: dict[str, Any] = {}
        for name, item in found.items():
            control = found[OWN_AREA if name == OWN_SCORES else AREA]
            columns = [(field.name, getattr(item, field.name)) for field in fields(item)]
            over = {key: _over(values, getattr(control, key)) for key, values in columns}
            cells[name] = {key: {**cell(values), "over area": over[key]} for key, values in columns}
        return cells


def gathered(
    examined: Sequence[Examined], confused: Sequence[NamedPart], *, facts: Mapping[str, Any]
) -> InterventionResult:
    """The values of all images together."""
    forms = list(examined[0].falls)
    parts = examined[0].parts
    truth = {form: torch.stack([item.falls[form] for item in examined]) for form in forms}
    contrasts = [item.contrast for item in examined if item.contrast]
    groups = {"all images": [item.named for item in examined], "confusions of siblings": confused}
    return InterventionResult(
        facts=facts,
        images=tuple(item.name for item in examined),
        agreement={form: _agreements(examined, form) for form in forms},
        importance={form: {part: truth[form][:, k] for k, part in enumerate(parts)} for form in forms},
        contrast={
            what: SiblingContrast(*map(torch.stack, zip(*(item[what] for item in contrasts), strict=True)))
            for what in (contrasts[0] if contrasts else ())
        },
        deciding={group: _named(found) for group, found in groups.items()},
    )


def _agreements(examined: Sequence[Examined], form: str) -> dict[str, Agreement]:
    """Explainers, single rows, controls, and where the form is drawn by lot, its second draw."""
    truth = torch.stack([item.falls[form] for item in examined]).unsqueeze(1)
    rows = _stacked([item.row_heat for item in examined])
    whole = {
        name: PartHeat(*(heat.unsqueeze(1) for heat in _stacked([item.heat[name] for item in examined])))
        for name in examined[0].heat
    }
    found = {name: Agreement.of(heat, truth) for name, heat in whole.items()}
    controls = {name: found.pop(name) for name in CONTROLS}
    found[SINGLE_ROWS] = Agreement.of(rows, truth.expand_as(rows.total))
    if form in examined[0].row_falls:
        own = torch.stack([item.row_falls[form] for item in examined])
        found[OWN_SCORES] = Agreement.of(rows, own)
        controls[OWN_AREA] = Agreement.of(PartHeat(*(heat.expand_as(own) for heat in whole[AREA])), own)
    if form in examined[0].falls_again:
        again = torch.stack([item.falls_again[form] for item in examined]).unsqueeze(1)
        controls[TRUTH_AGAIN] = Agreement.of(PartHeat(again, again), truth)
    return found | controls


def _stacked(heat: Sequence[PartHeat]) -> PartHeat:
    return PartHeat(*map(torch.stack, zip(*heat, strict=True)))


def _named(found: Sequence[NamedPart]) -> dict[str, dict[int, Tensor]]:
    known = [item for item in found if item.part >= 0]
    if not known:
        return {}
    part = torch.tensor([item.part for item in known])
    heat = {whose: torch.stack([item.heat[whose] for item in known]) for whose in known[0].heat}
    return {
        whose: {n: named_by_rows(values, part, rows=n) for n in _NAMED if n <= values.shape[1]}
        for whose, values in heat.items()
    }


def cell(values: Tensor) -> dict[str, float | None]:
    """Mean, interval, and how many images have a value."""
    return {**plain(mean_interval(values)), "images": int((~values.isnan()).sum())}


def _cells(columns: Mapping[str, Tensor]) -> dict[str, dict[str, float | None]]:
    return {name: cell(values) for name, values in columns.items()}


def _over(values: Tensor, control: Tensor) -> dict[str, float | None] | None:
    """How far above the control, with the paired interval; None where no image has both."""
    found = paired_bootstrap(values, control)
    if found.difference != found.difference:
        return None
    numbers = {"difference": found.difference, "low": found.low, "high": found.high}
    return {name: None if value != value else value for name, value in numbers.items()}
