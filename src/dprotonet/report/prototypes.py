"""Every class with its prototypes: source, place in it, weight, and what training images say of them."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dprotonet.experiment.explaining.pictures import boxed_place, place_picture
from dprotonet.experiment.model import Model
from dprotonet.experiment.prototypes.facts import PrototypeFacts
from dprotonet.experiment.runs.place import Place
from dprotonet.experiment.runs.run_folder import PrototypeRecord
from dprotonet.experiment.trained.part_names import PartName
from dprotonet.figures import overlay
from dprotonet.report.content import ClassCards, Picture, PrototypeCard
from dprotonet.report.embed import card_edge, embedded


def class_cards(
    model: Model,
    sources: Tensor,
    heatmaps: Mapping[int, Tensor],
    facts: Sequence[PrototypeFacts] | None,
) -> tuple[ClassCards, ...]:
    """Cards of all prototypes: sources (P, 3, H, W) uint8, heatmaps (H, W) of those that have one."""
    owner = model.prototyped.prototype_class.cpu()
    weights = model.prototyped.head.weight.detach().cpu()[owner, torch.arange(len(owner))].tolist()
    fired = sum(item.fires for item in facts) if facts is not None else 0
    edge = card_edge(len(owner))
    cards = [
        _card(
            record,
            weights[number],
            _pictures(record, sources[number], heatmaps.get(number), edge),
            model.part_names.get(number),
            None if facts is None else facts[number],
            fired,
        )
        for number, record in enumerate(model.prototypes)
    ]
    return tuple(
        ClassCards(name, tuple(_weightiest_first(cards, (owner == label).nonzero().flatten().tolist())))
        for label, name in enumerate(model.classes)
    )


def _weightiest_first(cards: Sequence[PrototypeCard], numbers: Sequence[int]) -> list[PrototypeCard]:
    return sorted((cards[number] for number in numbers), key=lambda card: (-card.weight, card.number))


def _pictures(
    record: PrototypeRecord, source: Tensor, heatmap: Tensor | None, edge: int
) -> tuple[Picture, Picture | None]:
    told = f"Training image {record.source} of {record.class_name}"
    where = "" if record.place is None else f", the place {_named_place(record.place)} large"
    plain = embedded(place_picture(source, record.place), f"{told}{where}.", longest=edge)
    if heatmap is None:
        return plain, None
    alt = f"The same image, coloured: the prototype lies {whereabouts(heatmap)}."
    return plain, embedded(boxed_place(overlay(source, heatmap), record.place), alt, longest=edge)


def _named_place(place: Place) -> str:
    spot = torch.zeros(30, 30)
    left, top, right, bottom = place.box(30, 30)
    spot[top:bottom, left:right] = 1
    return whereabouts(spot)


def whereabouts(heatmap: Tensor) -> str:
    """Where the heat of a map (H, W) lies, in words for those who cannot see it."""
    hot = heatmap * (heatmap >= 0.5 * heatmap.max())
    total = hot.sum().clamp(min=1e-12)
    rows, columns = (torch.linspace(0, 1, size) for size in heatmap.shape)
    down = int(3 * float((hot.sum(1) * rows).sum() / total) * 0.999)
    along = int(3 * float((hot.sum(0) * columns).sum() / total) * 0.999)
    upright, sideways = ("top", "middle", "bottom")[down], ("left", "centre", "right")[along]
    if (upright, sideways) == ("middle", "centre"):
        return "in the centre"
    return f"at the {upright} {sideways}"


def _card(
    record: PrototypeRecord,
    weight: float,
    pictures: tuple[Picture, Picture | None],
    name: PartName | None,
    facts: PrototypeFacts | None,
    fired: int,
) -> PrototypeCard:
    return PrototypeCard(
        number=record.prototype,
        source=record.source,
        picture=pictures[0],
        heatmap=pictures[1],
        weight=weight,
        purity=None if facts is None else facts.purity,
        among=0 if facts is None else facts.among,
        fires=None if facts is None else facts.fires,
        fires_share=None if facts is None or not fired else facts.fires / fired,
        twins=() if facts is None else facts.duplicates,
        part="" if name is None else name.words,
        sources=max(1, len(record.sources)),
    )
