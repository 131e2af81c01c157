"""What every data set promises, whoever wrote it: one suite over all of them."""

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dprotonet.data.base import ImageData, image_of
from dprotonet.data.birds import Birds, bird_splits
from dprotonet.data.cars import cars_splits
from dprotonet.data.cub import cropped_cub_splits, cub_splits
from dprotonet.data.folder import folder_splits
from dprotonet.data.folds import fold_splits
from dprotonet.data.image_cache import ImageCache
from dprotonet.data.palm import palm_splits
from dprotonet.data.reading import Reading
from dprotonet.data.rsna import rsna_splits
from original_layouts import make_car_folders, make_cars, make_cub, make_palm, make_rsna

SIZE = 64
Maker = Callable[[Path, int], ImageData]


def folder(root: Path, size: int) -> ImageData:
    random = np.random.default_rng(0)
    for name in [f"{split}/{kind}/{i}.png" for split in ("train", "test") for kind in "ab" for i in range(4)]:
        for path in (root / name, root / "masks" / name):
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(random.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(path)
    return folder_splits(root, Reading(size=size)).train


def cached_folder(root: Path, size: int) -> ImageData:
    folder(root, size)
    return folder_splits(root, Reading(size=size, cache=ImageCache(root / "cache"))).train


def birds(root: Path, size: int) -> ImageData:
    return Birds(species=4, per_species=2, split="train", seed=0, size=size)


def once(make: Callable[[Path], Path], root: Path) -> Path:
    """The data, made when it is not there yet: a second reading must find the same."""
    return root / "data" if (root / "data").exists() else make(root / "data")


def cub(root: Path, size: int) -> ImageData:
    return cub_splits(once(make_cub, root), Reading(size=size)).train


def cub_cropped(root: Path, size: int) -> ImageData:
    return cropped_cub_splits(once(make_cub, root), Reading(size=size)).train


def cars(root: Path, size: int) -> ImageData:
    pytest.importorskip("scipy")
    return cars_splits(once(make_cars, root), Reading(size=size)).train


def car_folders(root: Path, size: int) -> ImageData:
    return cars_splits(once(make_car_folders, root), Reading(size=size)).train


def rsna(root: Path, size: int) -> ImageData:
    pytest.importorskip("pydicom")
    return rsna_splits(once(make_rsna, root), Reading(size=size)).train


def rsna_png(root: Path, size: int) -> ImageData:
    return rsna_splits(once(partial(make_rsna, png=True), root), Reading(size=size)).train


def palm(root: Path, size: int) -> ImageData:
    return palm_splits(once(make_palm, root), Reading(size=size)).train


def fold(root: Path, size: int) -> ImageData:
    splits = bird_splits(species=4, train_per_species=2, val_per_species=1, test_per_species=1, size=size)
    return fold_splits(splits, folds=3, fold=2, seed=0).train


@pytest.fixture(
    params=[folder, cached_folder, birds, fold, cub, cub_cropped, cars, car_folders, rsna, rsna_png, palm]
)
def maker(request: pytest.FixtureRequest) -> Maker:
    made: Maker = request.param
    return made


@pytest.fixture
def data(maker: Maker, tmp_path: Path) -> ImageData:
    return maker(tmp_path, SIZE)


def test_images_are_square_bytes(data: ImageData) -> None:
    for index in range(len(data)):
        image = data[index].image
        assert (image.shape, image.dtype) == ((3, SIZE, SIZE), torch.uint8)


def test_truth_and_parts_have_the_size_of_the_image(data: ImageData) -> None:
    for sample in map(data.__getitem__, range(len(data))):
        masks = [*sample.parts.values(), *([sample.truth] if sample.truth is not None else [])]
        assert masks
        assert all((mask.shape, mask.dtype) == ((SIZE, SIZE), torch.bool) for mask in masks)
        assert sample.deciding_part is None or sample.deciding_part in sample.parts


def test_boxes_lie_on_the_image(data: ImageData) -> None:
    for sample in map(data.__getitem__, range(len(data))):
        for left, top, right, bottom in sample.boxes:
            assert 0 <= left < right <= SIZE
            assert 0 <= top < bottom <= SIZE


def test_labels_agree_with_the_samples(data: ImageData) -> None:
    assert list(data.labels) == [data[index].label for index in range(len(data))]
    assert set(data.labels) == set(range(len(data.classes)))
    assert len(set(data.classes)) == len(data.classes) > 1


def test_names_are_unique_and_agree_with_the_samples(data: ImageData) -> None:
    names = [data.name(index) for index in range(len(data))]
    assert len(set(names)) == len(data) > 0
    assert names == [data[index].name for index in range(len(data))]


def test_same_index_same_bytes(data: ImageData) -> None:
    forwards = [data[index].image for index in range(len(data))]
    backwards = [data[index].image for index in reversed(range(len(data)))][::-1]
    assert all(torch.equal(one, other) for one, other in zip(forwards, backwards, strict=True))
    assert len({image.numpy().tobytes() for image in forwards}) == len(data)


def test_the_image_alone_is_that_of_the_sample(data: ImageData) -> None:
    assert all(torch.equal(image_of(data, index), data[index].image) for index in range(len(data)))


def test_changing_a_sample_leaves_the_data_alone(data: ImageData) -> None:
    before = data[0].image.clone()
    data[0].image.zero_()
    assert torch.equal(data[0].image, before)


def test_there_is_an_end(data: ImageData) -> None:
    with pytest.raises(IndexError):
        data[len(data)]


def test_fingerprint_is_stable_and_follows_the_size(maker: Maker, data: ImageData, tmp_path: Path) -> None:
    assert maker(tmp_path, SIZE).fingerprint == data.fingerprint
    assert maker(tmp_path, SIZE // 2).fingerprint != data.fingerprint


def test_random_state_is_left_alone(data: ImageData) -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    data[0]
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()  # type: ignore[index]


def test_can_be_sent_to_a_worker(data: ImageData) -> None:
    copy: ImageData = pickle.loads(pickle.dumps(data))
    assert torch.equal(copy[0].image, data[0].image)
    assert copy.fingerprint == data.fingerprint
