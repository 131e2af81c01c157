"""Frozen features: right, reused, and checked on reuse."""

import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from tests.conftest import TinyBackbone, tiny_views
from torch import Tensor

from dprotonet.errors import ComputationError
from dprotonet.training.features import FeatureCache


def backbone(seed: int = 0) -> TinyBackbone:
    torch.manual_seed(seed)
    return TinyBackbone().eval()


def cache(folder: Path, trunk: TinyBackbone | None = None, augmentations: int = 2) -> FeatureCache:
    return FeatureCache(folder, trunk or backbone(), tiny_views(), augmentations, torch.device("cpu"))


def test_rows_are_what_the_backbone_gives(tmp_path: Path) -> None:
    features = cache(tmp_path)
    progress = list(features.build())
    views = features.open()
    assert progress[-1] == (45, 45)
    assert views.augmentations == 2
    for index, variant in [(0, 0), (7, 1), (14, 2)]:
        with torch.no_grad():
            expected = backbone()(tiny_views()[index, variant].inputs.unsqueeze(0))[0]
        torch.testing.assert_close(views[index, variant].inputs, expected, rtol=1e-2, atol=1e-3)
        assert views[index, variant].label == tiny_views().labels[index]


def test_features_are_computed_once(tmp_path: Path) -> None:
    list(cache(tmp_path).build())
    before = cache(tmp_path).path.stat().st_mtime_ns
    assert list(cache(tmp_path).build()) == [(45, 45)]
    assert cache(tmp_path).path.stat().st_mtime_ns == before


def test_other_weights_augmentations_or_data_have_another_key(tmp_path: Path) -> None:
    keys = {cache(tmp_path).key(), cache(tmp_path, backbone(1)).key(), cache(tmp_path, augmentations=1).key()}
    smaller = FeatureCache(tmp_path, backbone(), tiny_views(per_class=4), 2, torch.device("cpu"))
    assert len(keys | {smaller.key()}) == 4


@pytest.mark.parametrize("harm", ["truncate", "zero", "foreign"])
def test_a_damaged_file_is_noticed_and_made_again(
    tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    features = cache(tmp_path)
    list(features.build())
    good = np.array(features.open().features)
    if harm == "truncate":
        with features.path.open("r+b") as file:
            file.truncate(200)
    elif harm == "zero":
        np.save(features.path, np.zeros_like(good))
    else:
        features.path.write_text("not an array")
    with caplog.at_level(logging.WARNING):
        list(cache(tmp_path).build())
    assert "does not match" in caplog.text
    np.testing.assert_array_equal(cache(tmp_path).open().features, good)


def test_an_interrupted_build_leaves_nothing_behind(tmp_path: Path) -> None:
    building = cache(tmp_path).build()
    next(building)
    building.close()
    assert list(tmp_path.iterdir()) == []


def test_features_beyond_half_precision_are_refused(tmp_path: Path) -> None:
    trunk = backbone()
    with torch.no_grad():
        trunk.layers[1].weight.fill_(1e7)
    with pytest.raises(ComputationError, match="half precision"):
        list(cache(tmp_path, trunk).build())


class Told(NamedTuple):
    """What a backbone may give: a map, and something beside it."""

    feature_map: Tensor
    brightness: Tensor


class Telling(TinyBackbone):
    def forward(self, images: Tensor) -> Told:  # type: ignore[override]
        return Told(super().forward(images).half(), images.mean(dim=(2, 3)))


def test_what_else_a_pass_tells_is_kept_beside_the_map(tmp_path: Path) -> None:
    torch.manual_seed(0)
    features = cache(tmp_path, Telling().eval())
    list(features.build())
    views = features.open()
    torch.manual_seed(0)
    list((plain := cache(tmp_path / "plain", TinyBackbone().eval())).build())
    np.testing.assert_array_equal(views.features, plain.open().features)
    for index, variant in [(0, 0), (7, 1), (14, 2)]:
        expected = tiny_views()[index, variant].inputs.mean(dim=(1, 2)).numpy()
        np.testing.assert_allclose(views.beside["brightness"][index, variant], expected, rtol=1e-5, atol=1e-6)
    part = views.part([14, 3], 1)
    assert part.beside["brightness"].shape == (2, 2, 3)
    np.testing.assert_array_equal(part.beside["brightness"][0, 1], views.beside["brightness"][14, 1])
    assert list(cache(tmp_path, features.backbone).build()) == [(45, 45)]  # type: ignore[arg-type]


def test_another_kind_of_row_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    features = cache(tmp_path, Telling().eval())
    list(features.build())
    kept = np.load(features.path)
    np.save(features.path, kept["feature_map"])
    with caplog.at_level(logging.WARNING):
        list(features.build())
    assert "does not match" in caplog.text
    np.testing.assert_array_equal(np.load(features.path), kept)
