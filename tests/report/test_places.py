"""Prototypes that are places in a report: shown large, boxed on heatmaps, called by their names."""

from pathlib import Path

import pytest
import torch
from tests.experiment.export.conftest import untrained

import dprotonet as dp
from dprotonet.data.birds import Birds
from dprotonet.experiment.prototypes.parts import name_parts
from dprotonet.report.cases import Places, case, studied
from dprotonet.report.prototypes import class_cards

BIRDS = Birds(species=4, per_species=3, split="test", size=64)


@pytest.fixture
def model(tmp_path: Path) -> dp.Model:
    """Regions are the 2 × 2 places of a map."""
    made = untrained("protopnet")
    made.save_pretrained(tmp_path / "run")
    loaded = dp.load(tmp_path / "run")
    name_parts(loaded, {0: "beak"})
    return loaded


def test_cards_show_the_place_and_its_name(model: dp.Model) -> None:
    sources = BIRDS[0].image.expand(8, -1, -1, -1)
    groups = class_cards(model, sources, {1: torch.rand(64, 64)}, None)
    cards = {card.number: card for group in groups for card in group.cards}
    assert (cards[0].part, cards[1].part, cards[0].sources) == ("beak", "", 1)
    assert cards[0].picture.alt.endswith("the place at the top left large.")
    assert (cards[0].picture.width, cards[0].heatmap) == (224, None)
    assert cards[1].heatmap is not None


@pytest.mark.parametrize("made", [True, False])
def test_rows_have_their_places_with_and_without_heatmaps(model: dp.Model, made: bool) -> None:
    sources = BIRDS[0].image.expand(8, -1, -1, -1)
    (item,) = studied(model, BIRDS, [1])
    heat = {(1, number): torch.rand(64, 64) for number in range(8)} if made else {}
    places = Places(heat, {number: torch.rand(64, 64) for number in range(8)} if made else {})
    rows = case(model, item, places, sources, top=8).arguments[0].rows
    assert all(row.place is not None and row.source_placed for row in rows)
    likes = {row.prototype: row.like for row in rows}
    assert (likes[0], likes[1]) == ("its beak, like the beak of", "looks like")
    assert rows[0].place is not None
    assert ("coloured" in rows[0].place.alt) == made
