from collections import Counter
from typing import Any

import pytest
import torch
from tests.conftest import tiny_views

from dprotonet.training.views import BalancedKeys, ProcessShare, epoch_keys, epoch_parts, load, plain_batches


def test_an_epoch_has_every_image_once_in_another_order_each_time() -> None:
    views = tiny_views()
    first, second = (
        epoch_parts(views, seed=0, epoch=epoch, batch=4, share=ProcessShare()) for epoch in (1, 2)
    )
    indices = [index for part in first for index, _ in part.keys]
    assert sorted(indices) == list(range(len(views)))
    assert indices != [index for part in second for index, _ in part.keys]
    assert list(first) == list(epoch_parts(views, seed=0, epoch=1, batch=4, share=ProcessShare()))


def test_processes_share_the_same_batches() -> None:
    views = tiny_views()
    whole = epoch_parts(views, seed=3, epoch=1, batch=4, share=ProcessShare())
    shares = [epoch_parts(views, seed=3, epoch=1, batch=4, share=ProcessShare(rank, 2)) for rank in (0, 1)]
    for together, one, two in zip(whole, *shares, strict=True):
        assert sorted(one.keys + two.keys) == sorted(together.keys)
        assert together.weight == 1
        assert one.weight + two.weight == pytest.approx(2)
        assert one.weight / two.weight == pytest.approx(len(one.keys) / len(two.keys))


def test_plain_batches_split_without_loss_or_double() -> None:
    parts = [plain_batches(11, batch=3, share=ProcessShare(rank, 3)) for rank in range(3)]
    indices = [index for part in parts for batch in part for index, variant in batch if variant == 0]
    assert sorted(indices) == list(range(11))


def variants(number: int | None, index: int, per_image: int = 1) -> list[list[int]]:
    """Of one image, epoch by epoch."""
    source: Any = type("Source", (), {"augmentations": number, "__len__": lambda self: 9})()
    epochs = (epoch_keys(source, epoch=epoch, per_image=per_image) for epoch in (1, 2, 3, 4))
    return [[variant for place, variant in keys if place == index] for keys in epochs]


def test_variants_go_round_when_there_are_few() -> None:
    assert variants(3, 0) == [[1], [2], [3], [0]]
    assert variants(None, 7) == [[1], [2], [3], [4]]
    assert variants(0, 2) == [[0]] * 4


def test_an_epoch_of_several_views_has_new_ones_each_time() -> None:
    assert variants(None, 3, per_image=3) == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]
    assert variants(4, 1, per_image=2) == [[2, 3], [4, 0], [1, 2], [3, 4]]
    views = tiny_views()
    parts = epoch_parts(views, seed=0, epoch=2, batch=4, share=ProcessShare(), per_image=3)
    keys = [key for part in parts for key in part.keys]
    assert sorted(keys) == sorted((index, variant) for index in range(len(views)) for variant in (4, 5, 6))


def test_workers_change_nothing() -> None:
    views = tiny_views()
    batches = [part.keys for part in epoch_parts(views, seed=0, epoch=1, batch=4, share=ProcessShare())]
    alone = list(load(views, batches, workers=0))
    helped = list(load(views, batches, workers=2))
    assert len(alone) == len(helped) == len(batches)
    for one, two in zip(alone, helped, strict=True):
        assert torch.equal(one.inputs, two.inputs)
        assert torch.equal(torch.as_tensor(one.index), torch.as_tensor(two.index))


def test_a_last_batch_of_one_shares_with_the_one_before() -> None:
    """BatchNorm cannot learn from a single image; and none may be larger than there is memory for."""
    views = tiny_views()
    parts = epoch_parts(views, seed=0, epoch=1, batch=7, share=ProcessShare())
    assert [len(part.keys) for part in parts] == [7, 4, 4]
    assert sorted(index for part in parts for index, _ in part.keys) == list(range(len(views)))


class Labelled:
    """Views that have labels only: of 12, 3 and 1 images."""

    labels = (*[0] * 12, *[1] * 3, 2)

    def __init__(self, augmentations: int | None = None) -> None:
        self.augmentations = augmentations

    def __len__(self) -> int:
        return len(self.labels)


def balanced_epochs(epochs: int, **settings: Any) -> list[list[tuple[int, int]]]:
    views: Any = Labelled(settings.pop("augmentations", None))
    return [BalancedKeys(seed=3)(views, epoch=epoch, **settings) for epoch in range(1, epochs + 1)]


def test_a_balanced_epoch_shows_all_classes_equally_often() -> None:
    for keys in balanced_epochs(5):
        counts = Counter(Labelled.labels[index] for index, _ in keys)
        assert counts == {0: 6, 1: 6, 2: 6}  # a third of 16, rounded up
    assert len(balanced_epochs(1, per_image=3)[0]) == 3 * 16


def test_images_of_a_class_take_turns_and_come_back_as_other_views() -> None:
    keys = [key for epoch in balanced_epochs(4) for key in epoch]
    assert len(set(keys)) == len(keys)
    seen = Counter(index for index, _ in keys)
    assert {seen[index] for index in range(12)} == {2}
    assert {seen[index] for index in range(12, 15)} == {8}
    assert seen[15] == 24
    assert sorted(variant for index, variant in keys if index == 15) == list(range(1, 25))


def test_where_balanced_views_are_few_the_plain_image_takes_its_turn() -> None:
    keys = [key for epoch in balanced_epochs(4, augmentations=2) for key in epoch]
    assert Counter(variant for index, variant in keys if index == 15) == {0: 8, 1: 8, 2: 8}


def test_a_balanced_epoch_is_a_function_of_seed_and_epoch() -> None:
    """So a resumed run, and every process, sees the same."""
    views: Any = Labelled()
    assert list(BalancedKeys(1)(views, epoch=9)) == list(BalancedKeys(1)(views, epoch=9))
    assert list(BalancedKeys(1)(views, epoch=9)) != list(BalancedKeys(2)(views, epoch=9))
    settings: dict[str, Any] = {"seed": 1, "epoch": 2, "batch": 5, "sampling": BalancedKeys(1)}
    whole = epoch_parts(views, share=ProcessShare(), **settings)
    shares = [epoch_parts(views, share=ProcessShare(rank, 2), **settings) for rank in (0, 1)]
    for together, one, two in zip(whole, *shares, strict=True):
        assert Counter(one.keys + two.keys) == Counter(together.keys)
