"""Evidence: what every prototype says of an image, and by how much it decides between two classes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from dprotonet.experiment.runs.place import Place, place_of
from dprotonet.figures.words import looks_like
from dprotonet.inference.contrast import Leads, leads
from dprotonet.inference.region_assignment import PartRegion
from dprotonet.inference.several_labels import LabelHead
from dprotonet.network import BlackBox, Network


@dataclass(frozen=True)
class EvidenceItem:
    """One prototype's part in a decision: similarity × weight = contribution to the class's logit.

    Where regions are places, `place` is where the image looks like it, `source_place` where it came from.
    Where every class has a prototype of the same part, `lead` is how far this one is ahead of that of
    `rival`, the likeliest other class: a part that both share says much for each and decides nothing.
    """

    prototype: int
    class_name: str
    source: str
    similarity: float
    weight: float
    contribution: float
    region: int
    part: str = ""  # what people call its place, if that has a name
    place: Place | None = None
    source_place: Place | None = None
    lead: float | None = None
    rival: str = ""

    @property
    def decides(self) -> float:
        """What evidence is sorted by: the lead, or where there is none, the contribution."""
        return self.contribution if self.lead is None else self.lead

    @property
    def ahead(self) -> str:
        """ "0.83 ahead of Hill Wirafinch", or "behind"; nothing where there is no lead."""
        if self.lead is None:
            return ""
        return f"{abs(self.lead):.2f} {'ahead of' if self.lead >= 0 else 'behind'} {self.rival}"

    @property
    def words(self) -> str:
        """ "looks like", or with a named part "its beak, like the beak of"."""
        return looks_like(self.part)


class Origin(Protocol):
    """What evidence tells of a prototype."""

    @property
    def class_name(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def place(self) -> Place | None: ...


def evidence_items(
    origins: Sequence[Origin],
    rows: Iterable[tuple[float, float, float, int]],
    *,
    places: Sequence[Place] | None,
    parts: Mapping[int, str],
    contrast: "Contrast | None" = None,
) -> tuple[EvidenceItem, ...]:
    """Evidence of every prototype, what decides most first.

    A row is similarity, weight, contribution and region; `places` are those of regions in the image.
    """
    items = [
        EvidenceItem(
            number,
            origin.class_name,
            origin.source,
            *row,
            part=parts.get(number, ""),
            place=place_of(row[3], places),
            source_place=origin.place,
            **({} if contrast is None else contrast.of(number)),
        )
        for number, (origin, row) in enumerate(zip(origins, rows, strict=True))
    ]
    return decisive_first(items)


def decisive_first(items: Sequence[EvidenceItem]) -> tuple[EvidenceItem, ...]:
    """What decides most first.

    Beside leads, prototypes of other classes that say nothing come last: a part that is behind the rival's
    tells more than they do.
    """
    led = any(item.lead is not None for item in items)

    def key(item: EvidenceItem) -> tuple[bool, float, int]:
        return led and item.lead is None and item.contribution == 0, -item.decides, item.prototype

    return tuple(sorted(items, key=key))


@dataclass(frozen=True)
class Contrast:
    """Leads over the likeliest other class, by its name."""

    rival: str
    leads: Leads

    def of(self, prototype: int) -> dict[str, Any]:
        """Lead and rival of a prototype, if it has a lead."""
        lead = float(self.leads.points[prototype])
        return {} if lead != lead else {"lead": lead, "rival": self.rival}


def part_of_each(network: Network) -> Tensor | None:
    """The part (P,) that each prototype belongs to; None where regions are no parts."""
    assignment = None if isinstance(network, BlackBox) else network.prototypes.assignment
    return assignment.part.cpu() if isinstance(assignment, PartRegion) else None


def contrast_in(
    network: Network, classes: Sequence[str], scores: Sequence[float], label: int
) -> Contrast | None:
    """How far the prototypes of `label` lead, by the scores (P,) of an image; None without parts."""
    part = part_of_each(network)
    if part is None or isinstance(network, BlackBox) or isinstance(network.head, LabelHead):
        return None  # labels are no rivals
    found = leads(
        torch.as_tensor(scores, dtype=torch.float64),
        weight=network.head.weight.detach().cpu().double(),
        part=part,
        prototype_class=network.prototype_class.cpu(),
        label=label,
    )
    return Contrast(classes[found.rival], found)
