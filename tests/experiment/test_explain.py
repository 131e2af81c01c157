"""Explained predictions: sums, places, and heatmaps of sources that are made once a run."""

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import dprotonet as dp
from dprotonet.data.birds import Birds
from dprotonet.experiment.explaining import explain as explain_module
from dprotonet.experiment.explaining.explain import ExplainedPrediction, ExplainProgress
from dprotonet.experiment.explaining.pictures import source_images
from dprotonet.experiment.explaining.streaming import GrowingMap, grow_evidence
from dprotonet.interpretation.mdm import MDM
from dprotonet.interpretation.nodes import RegionNode

QUICK = dp.preset("fast", iterations=2, zoom=1.0)
BIRDS = [Birds(species=4, per_species=2, split="test", size=64)[index].image for index in (1, 6)]


@pytest.fixture
def model(run_folder: Path, tmp_path: Path) -> dp.Model:
    """In a folder of its own, since explaining leaves heatmaps there."""
    return dp.load(shutil.copytree(run_folder, tmp_path / "run"))


def heatmaps(explained: list[ExplainedPrediction], kind: str) -> torch.Tensor:
    return torch.stack([getattr(row, kind).heatmap.cpu() for each in explained for row in each.rows])


def files(model: dp.Model) -> list[Path]:
    assert model.folder is not None
    return sorted((model.folder / "explanations").rglob("*.npy"))


def test_rows_and_rest_add_up_to_the_logit(model: dp.Model) -> None:
    found = model.explain(BIRDS, top=2, preset=QUICK)
    assert len(found) == 2
    for item, image in zip(found, BIRDS, strict=True):
        alone = model.predict(image)
        assert item.prediction.class_name == alone.class_name
        assert [row.item for row in item.rows] == list(item.prediction.evidence[:2])
        points = sum(row.item.contribution for row in item.rows)
        assert points + item.rest == pytest.approx(item.prediction.logit)
        assert torch.equal(item.image, image)
    for kind in ("input", "source"):
        maps = heatmaps(found, kind)
        assert maps.shape == (4, 64, 64)
        assert float(maps.min()) >= 0
        assert maps.amax(dim=(1, 2)).tolist() == pytest.approx([1.0] * 4, abs=1e-3)


def test_places_are_those_of_the_equations(model: dp.Model) -> None:
    """Pairs in one batch give what Eqs. (12)-(15) give one by one."""
    (found,) = model.explain(BIRDS[0], top=2, preset=QUICK)
    encoder, decoder = model.network.encoder, MDM(preset=QUICK)

    def nearest(image: torch.Tensor, prototype: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return (encoder(image) - prototype).square().sum(dim=-1).argmin(dim=1)

    for row in found.rows:
        vector = model.network.prototypes.vectors.detach()[row.item.prototype : row.item.prototype + 1]
        here, there = model.inputs([BIRDS[0]]), model.inputs([row.source_image])
        (place,) = decoder.explain(here, RegionNode(encoder, nearest(here, vector)))
        (source,) = decoder.explain(there, RegionNode(encoder, nearest(there, vector), target=vector))
        assert torch.allclose(row.input.heatmap, place.heatmap, atol=0.02)
        assert torch.allclose(row.source.heatmap, source.heatmap, atol=0.02)


def test_maps_that_grow_are_those_of_their_prototypes(
    model: dp.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there are more than are decoded at a time."""
    monkeypatch.setattr(explain_module, "_PAIRS", 2)
    items, seen = model.predict(BIRDS[0]).evidence[:3], list[GrowingMap]()
    rows = grow_evidence(model, BIRDS[0], items, preset=QUICK, watch=seen.append)
    assert [row.item for row in rows] == list(items)
    assert all(len(now.prototypes) == len(now.raw) for now in seen)
    numbers = [item.prototype for item in items]
    for where in ("image", "source"):
        told = dict.fromkeys(number for now in seen if now.where == where for number in now.prototypes)
        assert list(told) == numbers
    assert [now.done for now in seen] == sorted(now.done for now in seen)
    assert seen[-1].done == seen[-1].total


def test_many_blocks_give_what_one_gives(model: dp.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    together = model.explain(BIRDS, top=3, preset=QUICK)
    shutil.rmtree(model.folder / "explanations")  # type: ignore[operator]
    monkeypatch.setattr(explain_module, "_PAIRS", 2)
    monkeypatch.setattr(explain_module, "_IMAGES", 1)
    apart = model.explain(BIRDS, top=3, preset=QUICK)
    for kind in ("input", "source"):
        assert torch.allclose(heatmaps(together, kind), heatmaps(apart, kind), atol=0.02)


def test_sources_are_made_once_a_run(model: dp.Model) -> None:
    seen: list[ExplainProgress] = []
    first = model.explain(BIRDS[:1], top=2, preset=QUICK, on_step=seen.append)
    assert {step.what for step in seen} == {"prototypes", "images"}
    assert all(row.source.passes.forward > 0 for row in first[0].rows)
    assert len(files(model)) == 2
    seen.clear()
    again = dp.load(model.folder).explain(BIRDS[:1], top=2, preset=QUICK, on_step=seen.append)  # type: ignore[arg-type]
    assert {step.what for step in seen} == {"images"}
    assert all(row.source.passes == (0, 0) for row in again[0].rows)
    assert torch.equal(heatmaps(first, "source"), heatmaps(again, "source"))
    model.explain(BIRDS[:1], top=4, preset=QUICK)  # more prototypes are made on demand
    assert len(files(model)) == 4


def test_progress_counts_all_maps(model: dp.Model) -> None:
    seen: list[ExplainProgress] = []
    model.explain(BIRDS, top=2, preset=QUICK, on_step=seen.append)
    done = [step.done for step in seen]
    assert done == sorted(done)
    assert {step.total for step in seen} == {done[-1]}


def test_another_preset_or_network_has_other_files(model: dp.Model) -> None:
    model.explain(BIRDS[:1], top=1, preset=QUICK)
    model.explain(BIRDS[:1], top=1, preset=dp.preset("fast", iterations=3, zoom=1.0))
    with torch.no_grad():
        next(model.network.encoder.shaping.parameters()).add_(0.01)
    model.explain(BIRDS[:1], top=1, preset=QUICK)
    assert len({file.parent for file in files(model)}) == 3


def test_a_preset_with_a_threshold_keeps_what_is_above_it(model: dp.Model) -> None:
    by = dp.preset("paper", iterations=2, sizes=(4, 5), threshold=0.5)
    first = model.explain(BIRDS[:1], top=1, preset=by)[0].rows[0].source
    again = model.explain(BIRDS[:1], top=1, preset=by)[0].rows[0].source
    assert again.passes == (0, 0)
    assert 0 < first.binary_mask.float().mean() < 1
    assert torch.equal(first.binary_mask, again.binary_mask)
    (above,) = (path for path in files(model) if path.name.endswith("-above.npy"))
    above.unlink()  # as if an older version had kept the heatmap alone
    made = model.explain(BIRDS[:1], top=1, preset=by)[0].rows[0].source
    assert made.passes.forward > 0
    assert torch.equal(first.binary_mask, made.binary_mask)
    above.write_bytes(b"no array")
    assert model.explain(BIRDS[:1], top=1, preset=by)[0].rows[0].source.passes.forward > 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no array",
        np.zeros((3, 3), np.float16),
        np.zeros((64, 64), np.float32),
        np.full((64, 64), np.nan, np.float16),
        np.full((64, 64), 2, np.float16),
        np.array([{"a": "pickle"}]),
    ],
    ids=["empty", "foreign", "small", "wide", "nan", "hot", "pickle"],
)
def test_a_damaged_heatmap_is_made_anew(
    model: dp.Model, content: bytes | np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    before = model.explain(BIRDS[:1], top=1, preset=QUICK)
    (path,) = files(model)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content, allow_pickle=True)
    with caplog.at_level(logging.WARNING):
        after = model.explain(BIRDS[:1], top=1, preset=QUICK)
    assert "damaged" in caplog.text
    assert after[0].rows[0].source.passes.forward > 0
    assert torch.allclose(heatmaps(before, "source"), heatmaps(after, "source"), atol=0.02)
    assert np.load(path).shape == (64, 64)


def test_a_folder_that_cannot_be_written_is_no_obstacle(
    model: dp.Model, caplog: pytest.LogCaptureFixture
) -> None:
    (model.folder / "explanations").write_text("a file in the way")  # type: ignore[operator]
    with caplog.at_level(logging.WARNING):
        (found,) = model.explain(BIRDS[0], top=1, preset=QUICK)
    assert found.rows
    assert "cannot be written" in caplog.text


def test_the_network_comes_back_as_it_was(model: dp.Model) -> None:
    before = {name: value.clone() for name, value in model.network.state_dict().items()}
    wanted = [parameter.requires_grad for parameter in model.network.parameters()]
    model.explain(BIRDS[:1], top=1, preset=QUICK)
    assert all(torch.equal(before[name], value) for name, value in model.network.state_dict().items())
    assert [parameter.requires_grad for parameter in model.network.parameters()] == wanted
    assert not any(module.training for module in model.network.modules())


def test_one_image_in_any_form(model: dp.Model, tmp_path: Path) -> None:
    path = tmp_path / "bird.png"
    picture = Image.fromarray(BIRDS[0].permute(1, 2, 0).numpy())
    picture.save(path)
    found = [model.explain(image, top=1, preset=QUICK) for image in (path, str(path), picture, BIRDS[0])]
    assert [len(each) for each in found] == [1] * 4
    assert [each[0].prediction.name for each in found] == [str(path), str(path), "", ""]
    assert model.explain([]) == []


def test_all_prototypes_and_a_sheet(model: dp.Model) -> None:
    (found,) = model.explain(BIRDS[0], top=99, preset=QUICK)
    assert len(found.rows) == len(model.prototypes)
    assert found.rest == pytest.approx(0, abs=1e-9)
    assert found.picture("a bird").width > 1000


def test_what_cannot_be_explained(model: dp.Model) -> None:
    with pytest.raises(dp.UserError, match="top is 0"):
        model.explain(BIRDS, top=0)
    with pytest.raises(dp.UserError, match="unknown preset 'slow'"):
        model.explain(BIRDS, preset="slow")
    with pytest.raises(dp.UserError, match="an image is a path"):
        model.explain([5])  # type: ignore[list-item]
    model.folder = None
    with pytest.raises(dp.UserError, match="source images are not at hand"):
        model.explain(BIRDS, preset=QUICK)


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_run_that_lost_its_source_images(model: dp.Model, damage: str) -> None:
    assert model.folder is not None
    for path in (model.folder / "prototypes").glob("*.png"):
        if damage == "cut":
            path.write_bytes(path.read_bytes()[:60])
        else:
            path.unlink()
    for shown in (lambda: model.explain(BIRDS, preset=QUICK), lambda: source_images(model)):
        with pytest.raises(
            dp.UserError, match=r"prototypes.*png, .* is missing or damaged; copy the run again"
        ):
            shown()
