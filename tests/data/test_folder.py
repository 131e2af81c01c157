"""Folders good and bad: what is found, what is skipped, what is refused and how the message helps."""

import logging
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from PIL import Image
from tests.data.conftest import names, paint, refusal, scan


def test_finds_splits_classes_and_labels(root: Path) -> None:
    splits = scan(root)
    assert [len(part) for part in (splits.train, splits.val, splits.test)] == [18, 2, 6]
    assert list(splits.train.classes) == list(splits.val.classes) == ["robin", "tit"]
    assert names(splits.test) == sorted(f"test/{name}/{i}.png" for name in ("robin", "tit") for i in range(3))
    assert list(splits.test.labels) == [0, 0, 0, 1, 1, 1]
    assert splits.skipped == {}


def test_items_hold_the_pixels_of_their_file(root: Path) -> None:
    Image.new("RGB", (30, 20), (10, 200, 30)).save(root / "test" / "tit" / "1.png")
    data = scan(root).test
    sample = data[names(data).index("test/tit/1.png")]
    assert torch.equal(
        sample.image, torch.tensor([10, 200, 30], dtype=torch.uint8).expand(8, 8, 3).permute(2, 0, 1)
    )
    assert (sample.label, sample.name, sample.truth) == (1, "test/tit/1.png", None)


# The validation share


def test_share_is_stratified_disjoint_and_seeded(root: Path) -> None:
    first, again, other = (
        scan(root, val_fraction=0.3),
        scan(root, val_fraction=0.3),
        scan(root, val_fraction=0.3, seed=1),
    )
    assert Counter(first.val.labels) == {0: 3, 1: 3}
    assert not set(names(first.val)) & set(names(first.train))
    assert len(set(names(first.val)) | set(names(first.train))) == 20
    assert names(first.val) == sorted(names(first.val)) == names(again.val) != names(other.val)


def test_given_val_folder_is_used_as_it_is(root: Path) -> None:
    wanted = [paint(root / "val" / name / "v.png") for name in ("robin", "tit")]
    splits = scan(root)
    assert names(splits.val) == [path.relative_to(root).as_posix() for path in wanted]
    assert len(splits.train) == 20


def test_two_training_images_give_one_each(root: Path) -> None:
    for number in range(2, 10):
        (root / "train" / "tit" / f"{number}.png").unlink()
    splits = scan(root, val_fraction=0.9)
    assert Counter(splits.train.labels)[1] == Counter(splits.val.labels)[1] == 1


def test_a_single_training_image_cannot_be_shared(root: Path) -> None:
    for number in range(1, 10):
        (root / "train" / "tit" / f"{number}.png").unlink()
    message = refusal(root)
    assert "train/tit" in message
    assert "val/" in message


@pytest.mark.parametrize("seed", range(5))
def test_copies_stay_on_one_side(root: Path, seed: int) -> None:
    for number in range(8):
        shutil.copy(root / "train" / "robin" / "0.png", root / "train" / "robin" / f"copy{number}.png")
        shutil.copy(root / "train" / "tit" / f"{number}.png", root / "train" / "tit" / f"copy{number}.png")
    splits = scan(root, val_fraction=0.4, seed=seed)
    contents = [{(root / name).read_bytes() for name in names(part)} for part in (splits.train, splits.val)]
    assert not contents[0] & contents[1]
    assert Counter(splits.val.labels)[0] <= 8  # the crowd of nine copies did not come along
    assert Counter(splits.val.labels)[1] >= 7


def test_copies_under_two_classes_stay_in_train(root: Path) -> None:
    for number in range(9):
        shutil.copy(root / "train" / "robin" / f"{number}.png", root / "train" / "tit" / f"{number}.png")
    splits = scan(root, val_fraction=0.5)
    assert names(splits.val) == ["train/robin/9.png", "train/tit/9.png"]


def test_a_class_of_copies_cannot_be_shared(root: Path) -> None:
    for number in range(1, 10):
        shutil.copy(root / "train" / "tit" / "0.png", root / "train" / "tit" / f"{number}.png")
    assert "train/tit has too few different images (1)" in refusal(root)


# Which files count


def test_extensions_in_any_case_and_nothing_else(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = root / "test" / "tit"
    paint(folder / "upper.JPG")
    paint(folder / "._mac.png")
    paint(folder / ".ipynb_checkpoints" / "x.png")
    (folder / "notes.txt").write_text("no image")
    (folder / "folder.png").mkdir()
    splits = scan(root)
    assert [name for name in names(splits.test) if "/tit/" in name][3:] == ["test/tit/upper.JPG"]
    assert [record.getMessage() for record in caplog.records] == ["ignored by their ending: 1 .txt"]
    assert splits.skipped == {}


def test_nested_folders_unicode_and_case_twins(root: Path) -> None:
    for name in ("deep/er/x.png", "Größe 写真.png", "X.png", "x.png", "a b.png"):
        paint(root / "test" / "tit" / name)
    data = scan(root).test
    found = names(data)
    assert {f"test/tit/{n}" for n in ("deep/er/x.png", "Größe 写真.png", "X.png", "x.png", "a b.png")} <= set(
        found
    )
    assert data[found.index("test/tit/deep/er/x.png")].label == 1
    assert data[found.index("test/tit/Größe 写真.png")].image.shape == (3, 8, 8)


def test_links_are_followed_but_not_in_circles(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    paint(elsewhere / "linked.png")
    folder = root / "test" / "tit"
    (folder / "more").symlink_to(elsewhere)
    (folder / "circle").symlink_to(folder)
    (folder / "dangling.png").symlink_to(root / "nowhere.png")
    splits = scan(root)
    assert "test/tit/more/linked.png" in names(splits.test)
    assert len(splits.test) == 7
    assert splits.skipped == {"test/tit/dangling.png": "No such file or directory"}


def test_broken_files_are_skipped_and_named(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = (root / "train" / "robin" / "3.png").read_bytes()
    (root / "train" / "robin" / "3.png").write_bytes(whole[:60])
    (root / "test" / "tit" / "0.png").write_bytes(b"")
    splits = scan(root)
    assert set(splits.skipped) == {"train/robin/3.png", "test/tit/0.png"}
    assert "empty" in splits.skipped["test/tit/0.png"]
    assert len(splits.train) + len(splits.val) == 19
    assert len(splits.test) == 5
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "2 of 26" in warning
    assert "train/robin/3.png" in warning


def test_progress_counts_every_file(root: Path) -> None:
    seen: list[tuple[int, int]] = []
    scan(root, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 26) for done in range(1, 27)]


# Masks


def mask_for(root: Path, name: str, *, box: tuple[int, int, int, int] = (0, 0, 3, 6)) -> Path:
    path = root / "masks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    mask = Image.new("1", (9, 6), 0)
    mask.paste(1, box)
    mask.save(path)
    return path


def test_masks_become_truth_also_for_images_set_aside(root: Path) -> None:
    for number in range(10):
        mask_for(root, f"train/robin/{number}.png")
    paint(root / "test" / "tit" / "sub" / "p.jpeg")
    mask_for(root, "test/tit/sub/p.PNG", box=(0, 0, 9, 6))
    splits = scan(root)
    aside = splits.val[0]
    assert aside.name.startswith("train/robin/")
    assert aside.truth is not None
    assert aside.truth.dtype == torch.bool
    assert aside.truth[:, :2].all()
    assert not aside.truth[:, 4:].any()
    assert splits.val[1].truth is None
    nested = splits.test[names(splits.test).index("test/tit/sub/p.jpeg")]
    assert nested.truth is not None
    assert nested.truth.all()


def test_masks_without_image_are_counted_and_ignored(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    mask_for(root, "train/robin/0.png")
    mask_for(root, "train/robin/gone.png")
    mask_for(root, "val/robin/0.png")
    scan(root)
    assert "2 masks" in caplog.text
    assert "masks/train/robin/gone.png" in caplog.text
    assert "masks/train/robin/0.png" not in caplog.text


def test_unreadable_mask_is_refused(root: Path) -> None:
    mask_for(root, "test/tit/0.png").write_bytes(b"no image at all")
    assert os.path.join("masks", "test", "tit", "0.png") in refusal(root)


# Leaks


def leak(root: Path, number: int) -> None:
    shutil.copy(root / "train" / "robin" / f"{number}.png", root / "test" / "tit" / f"leak{number}.png")


def test_same_bytes_in_two_splits_are_refused_by_name(root: Path) -> None:
    leak(root, 4)
    message = refusal(root)
    assert "train/robin/4.png = test/tit/leak4.png;\nremove one" in message  # on one line too, two things
    assert "pairs: 1)" in message
    assert "--allow-leaks" in message


def test_only_ten_leaks_are_listed(root: Path) -> None:
    for number in range(10):
        leak(root, number)
        shutil.copy(root / "train" / "tit" / f"{number}.png", root / "test" / "robin" / f"leak{number}.png")
    message = refusal(root)
    assert message.count(" = ") == 10
    assert "pairs: 20)" in message


def test_leaks_can_be_allowed(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    leak(root, 4)
    assert len(scan(root, allow_leaks=True).test) == 7
    assert "train/robin/4.png = test/tit/leak4.png" in caplog.text


def test_a_given_val_folder_may_leak_too(root: Path) -> None:
    paint(root / "val" / "tit" / "v.png")
    (root / "val" / "robin").mkdir()
    shutil.copy(root / "test" / "robin" / "0.png", root / "val" / "robin" / "v.png")
    assert "val/robin/v.png = test/robin/0.png" in refusal(root)


def test_copies_within_a_split_only_warn(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copy(root / "test" / "tit" / "0.png", root / "test" / "tit" / "copy.png")
    assert len(scan(root).test) == 7
    assert "test/tit/0.png = test/tit/copy.png" in caplog.text
    assert "within a split" in caplog.text


# Fingerprint


def test_fingerprint_follows_contents_not_place_or_time(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    moved = tmp_path_factory.mktemp("moved") / "data"
    shutil.copytree(root, moved)
    before = scan(root).test.fingerprint
    os.utime(root / "test" / "tit" / "0.png", (1, 1))
    assert scan(root).test.fingerprint == scan(moved).test.fingerprint == before


@pytest.mark.parametrize("change", ["edit", "rename", "remove", "mask"])
def test_fingerprint_changes_with(root: Path, change: str) -> None:
    before = scan(root).test.fingerprint
    path = root / "test" / "tit" / "0.png"
    if change == "edit":
        paint(path)
    elif change == "rename":
        path.rename(path.with_name("9.png"))
    elif change == "remove":
        path.unlink()
    else:
        mask_for(root, "test/tit/0.png")
    assert scan(root).test.fingerprint != before
