"""Frozen features: right, reused, and checked on reuse."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import TinyBackbone, tiny_views

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
