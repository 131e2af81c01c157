"""Kept images are the decoded ones, to the byte, whatever is wrong with an entry or the folder."""

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from dprotonet.cli.train import absolute
from dprotonet.config import DataConfig
from dprotonet.data import image_cache
from dprotonet.data.base import Splits
from dprotonet.data.box import Box
from dprotonet.data.digest import content_digest
from dprotonet.data.image import read_image
from dprotonet.data.image_cache import ImageCache
from dprotonet.data.transforms import Normalise, Views
from dprotonet.experiment.build.data import build_splits
from dprotonet.training.views import ProcessShare, load, plain_batches

SIZE = 16


def noise(path: Path, seed: int = 0, side: int = 40) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)).save(path)
    return path


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    return noise(tmp_path / "a.png")


@pytest.fixture
def cache(tmp_path: Path) -> ImageCache:
    return ImageCache(tmp_path / "cache")


def ask(cache: ImageCache, path: Path, *, size: int = SIZE, crop: Box | None = None) -> Tensor:
    return cache.image(path, digest=content_digest(path.read_bytes()), size=size, crop=crop)


def entries(cache: ImageCache) -> list[Path]:
    return sorted(path for path in cache.folder.rglob("*") if path.is_file())


def refuse(*_: object, **__: object) -> Tensor:
    raise AssertionError("decoded although it was kept")


def test_the_second_time_nothing_is_decoded(
    cache: ImageCache, picture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ask(cache, picture)
    monkeypatch.setattr(image_cache, "decode_image", refuse)
    again = ask(cache, picture)
    assert torch.equal(first, read_image(picture, size=SIZE))
    assert torch.equal(again, first)
    again.zero_()  # the caller's own
    assert torch.equal(ask(cache, picture), first)


def test_size_crop_and_bytes_have_entries_of_their_own_and_names_have_not(
    cache: ImageCache, picture: Path, tmp_path: Path
) -> None:
    half = Box(0.0, 0.0, 0.5, 1.0)
    asked = [(picture, SIZE, None), (picture, SIZE * 2, None), (picture, SIZE, half)]
    asked.append((noise(tmp_path / "b.png", seed=1), SIZE, None))
    for _ in range(2):
        for path, size, crop in asked:
            assert torch.equal(ask(cache, path, size=size, crop=crop), read_image(path, size=size, crop=crop))
    ask(cache, noise(tmp_path / "elsewhere" / "copy.png"))
    assert len(entries(cache)) == 4


@pytest.mark.parametrize("harm", ["empty", "cut", "flipped", "foreign", "checksum"])
def test_a_damaged_entry_is_made_anew(cache: ImageCache, picture: Path, harm: str) -> None:
    first = ask(cache, picture)
    (entry,) = entries(cache)
    good = entry.read_bytes()
    harmed = {
        "empty": b"",
        "cut": good[:-1],
        "flipped": good[:100] + bytes([good[100] ^ 1]) + good[101:],
        "foreign": b"not pixels",
        "checksum": bytes([good[0] ^ 1]) + good[1:],
    }
    entry.write_bytes(harmed[harm])
    assert torch.equal(ask(cache, picture), first)
    assert entry.read_bytes() == good


def test_a_file_that_changed_since_the_scan_is_not_kept_for_the_old_one(
    cache: ImageCache, picture: Path
) -> None:
    digest = content_digest(picture.read_bytes())
    noise(picture, seed=2)
    now = cache.image(picture, digest=digest, size=SIZE, crop=None)
    assert torch.equal(now, read_image(picture, size=SIZE))
    assert entries(cache) == []


def test_a_folder_that_cannot_be_written_is_told_once_and_slows_only(
    tmp_path: Path, picture: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            image = ask(ImageCache(tmp_path / "taken"), picture)
    assert torch.equal(image, read_image(picture, size=SIZE))
    (warning,) = caplog.messages
    assert "taken" in warning


def test_many_may_write_the_same_entry_at_once(cache: ImageCache, picture: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        images = list(pool.map(lambda _: ask(cache, picture), range(64)))
    assert all(torch.equal(image, read_image(picture, size=SIZE)) for image in images)
    assert len(entries(cache)) == 1  # and no temporary file


def splits_of(root: Path, image_cache: str = "") -> Splits:
    return build_splits(DataConfig(data=f"folder:{root}", image_size=SIZE, image_cache=image_cache))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    names = [f"{split}/{kind}/{i}" for split in ("train", "test") for kind in "ab" for i in range(3)]
    for seed, name in enumerate(names):
        noise(tmp_path / "data" / f"{name}.png", seed)
        noise(tmp_path / "data" / "masks" / f"{name}.png", seed)
    return tmp_path / "data"


def test_workers_share_a_cache_and_give_what_they_gave_without(root: Path, tmp_path: Path) -> None:
    def inputs(splits: Splits, workers: int) -> Tensor:
        views = Views(splits.test, Normalise((0.5,), (0.5,)), augment=None, seed=0)
        batches = plain_batches(len(views), batch=2, share=ProcessShare())
        return torch.cat([view.inputs for view in load(views, batches, workers=workers)])

    plain = inputs(splits_of(root), workers=0)
    for _ in range(2):
        assert torch.equal(inputs(splits_of(root, str(tmp_path / "kept")), workers=2), plain)
    assert len(entries(ImageCache(tmp_path / "kept"))) == 6  # the test split's


def test_samples_keep_their_truth_and_fingerprint(root: Path, tmp_path: Path) -> None:
    plain, kept = splits_of(root).train, splits_of(root, str(tmp_path / "kept")).train
    assert kept.fingerprint == plain.fingerprint
    for index in [0, 1, 0]:
        assert torch.equal(kept[index].image, plain[index].image)
        truth, expected = kept[index].truth, plain[index].truth
        assert truth is not None
        assert expected is not None
        assert torch.equal(truth, expected)


def test_training_opens_no_mask(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = splits_of(root).train
    monkeypatch.setattr("dprotonet.data.listed.read_mask", refuse)
    assert Views(train, Normalise((0.5,), (0.5,)), augment=None, seed=0)[0, 0].inputs.shape == (3, SIZE, SIZE)


def test_the_folder_is_remembered_by_its_full_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute(DataConfig(image_cache="kept")).image_cache == str(tmp_path / "kept")
    assert absolute(DataConfig()).image_cache == ""
