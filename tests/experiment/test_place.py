"""Places of regions, what is shown around them, and run folders of earlier versions that lack them."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from tests.experiment.export.conftest import untrained
from torch import nn

import dprotonet as dp
from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.regions import Masks, Occurrence, Patches, Points, spatial_masks
from dprotonet.errors import UserError
from dprotonet.experiment.prototypes.split_evidence import splits_of_run
from dprotonet.experiment.runs.place import Place, region_places
from dprotonet.experiment.runs.run_folder import RunFolder, prototype_records
from dprotonet.inference.projection import NOTHING
from dprotonet.training.push import Projection


def places(regions: nn.Module) -> tuple[Place, ...] | None:
    return region_places(Encoder(nn.Identity(), nn.Identity(), regions))


@pytest.mark.parametrize("patch", [(1, 1), (2, 1), (2, 3)])
def test_places_by_loops_over_the_map(patch: tuple[int, int]) -> None:
    height, width = 3, 4
    found = places(Patches(5, (height, width), patch=patch))
    wanted = [
        (row / height, column / width, patch[0] / height, patch[1] / width)
        for row in range(height - patch[0] + 1)
        for column in range(width - patch[1] + 1)
    ]
    assert found is not None
    numbers = torch.tensor([tuple(asdict(place).values()) for place in found])
    assert torch.allclose(numbers, torch.tensor(wanted))
    if patch == (1, 1):
        assert found == places(Points(5, (height, width)))


def test_masks_and_occurrence_maps_have_no_place() -> None:
    assert places(Masks(spatial_masks(4, (3, 3), seed=0), dimension=5)) is None
    assert places(Occurrence(5, 4, (3, 3))) is None


def test_a_point_is_shown_as_three_by_three_and_moved_inwards_at_an_edge() -> None:
    cell = 1 / 14
    middle = Place(5 * cell, 8 * cell, cell, cell)
    assert middle.box(224, 224) == (128, 80, 144, 96)
    assert middle.shown.box(224, 224) == (112, 64, 160, 112)
    assert Place(0.0, 13 * cell, cell, cell).shown.box(224, 224) == (176, 0, 224, 48)
    assert Place(0.0, 0.0, 1.0, 1.0).shown == Place(0.0, 0.0, 1.0, 1.0)
    coarse = Place(3 / 7, 3 / 7, 1 / 7, 1 / 7)  # of a 7 × 7 map: the margin is a fourteenth all the same
    assert coarse.shown.box(224, 224) == (80, 80, 144, 144)
    assert Place(0.999, 0.0, 0.001, 0.001).box(8, 8) == (0, 7, 1, 8)  # never empty
    assert middle.words == "61 %, 39 %"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        [0, 0, 1, 1],
        {"top": 0, "left": 0, "height": 1},
        {"top": 0, "left": 0.5, "height": 1, "width": 0.6},
        {"top": -0.1, "left": 0, "height": 1, "width": 1},
        {"top": 0, "left": 0, "height": 0, "width": 1},
        {"top": float("nan"), "left": 0, "height": 1, "width": 1},
        {"top": "0", "left": 0, "height": 1, "width": 1},
        {"top": 0, "left": 0, "height": 1, "width": 1, "depth": 1},
    ],
)
def test_a_place_is_read_with_distrust(wrong: object) -> None:
    with pytest.raises((ValueError, KeyError)):
        Place.from_json(wrong)  # type: ignore[arg-type]


def test_records_name_the_place_and_every_image() -> None:
    model = untrained("protopnet")
    count = len(model.prototypes)
    train = splits_of_run(model).train
    region = torch.arange(count) % 4
    sources = torch.tensor([[5, 2, NOTHING]] * count)
    projection = Projection(
        torch.full((count,), 5), region, torch.zeros(count), 3, sources, torch.zeros(count, dtype=torch.bool)
    )
    records = prototype_records(model.prototyped, projection, train, seed=0, normalise=model.normalise)
    assert records[3].place == Place(0.5, 0.5, 0.5, 0.5)  # the last place of a 2 × 2 map
    assert records[3].sources == (train.name(5), train.name(2))


def test_a_run_of_an_earlier_version_gets_its_places_when_it_is_loaded(tmp_path: Path) -> None:
    model = untrained("protopnet")
    old = [replace(item, region=number % 4) for number, item in enumerate(model.prototypes)]
    (tmp_path / "prototypes").mkdir()
    (tmp_path / "prototypes" / "000000.png").write_bytes(b"not looked at")
    RunFolder(tmp_path).write_config(model.config)
    RunFolder(tmp_path).write_model(model.network, old, model.classes)
    path = tmp_path / "prototypes.json"
    content = json.loads(path.read_text())
    for item in content["prototypes"]:  # as files were: the digest must not have counted these
        assert item.pop("place") is None
        assert item.pop("sources") == []
    path.write_text(json.dumps(content))
    loaded = dp.load(tmp_path)
    assert [item.place for item in loaded.prototypes[:4]] == list(loaded.places or ())
    assert loaded.prototypes[1].sources == (old[1].source,)
    loaded.save_pretrained(tmp_path / "again")  # now with places, and a digest of its own
    assert dp.load(tmp_path / "again").prototypes == loaded.prototypes
    told = json.loads((tmp_path / "again" / "prototypes.json").read_text())
    assert told["prototypes"][1]["place"] == {"top": 0.0, "left": 0.5, "height": 0.5, "width": 0.5}
    told["prototypes"][1]["place"]["left"] = 7
    (tmp_path / "again" / "prototypes.json").write_text(json.dumps(told))
    with pytest.raises(UserError, match=r"prototypes.json is damaged .* must lie within its image"):
        dp.load(tmp_path / "again")
