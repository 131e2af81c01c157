"""CUB-200-2011 as it is unpacked: split, names, boxes, outlines and parts; and what a bad download says."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from dprotonet.data.base import Sample, Splits
from dprotonet.data.cub import cropped_cub_splits, cub_splits
from dprotonet.data.listed import ListedImages
from dprotonet.data.problems import MissingOfficialFile
from dprotonet.data.reading import Reading
from dprotonet.errors import UserError
from original_layouts import make_cub

SIZE = 60  # twice the width, three times the height of the images
FIRST = "images/001.Black_footed_Albatross/Black_footed_Albatross_0000_0.jpg"
READING = Reading(size=SIZE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_cub(tmp_path / "CUB_200_2011")


def everything(splits: Splits) -> dict[str, Sample]:
    parts = (splits.train, splits.val, splits.test)
    return {part.name(index): part[index] for part in parts for index in range(len(part))}


def change(path: Path, old: str, new: str) -> None:
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new, 1))


def test_the_official_split_and_readable_names(root: Path) -> None:
    splits = cub_splits(root, READING)
    assert list(splits.train.classes) == ["Black footed Albatross", "Laysan Albatross"]
    assert (len(splits.train), len(splits.val), len(splits.test)) == (6, 2, 4)
    numbers = {splits.test.name(i)[-8:] for i in range(4)}
    assert numbers == {"0002_2.jpg"[-8:], "0005_5.jpg"[-8:]}  # every third of images.txt
    assert list(splits.test.labels) == [0, 0, 1, 1]
    assert (splits.problems, splits.absent, splits.leaks) == ({}, {}, ())


def test_the_outline_is_where_most_annotators_agree(root: Path) -> None:
    truth = everything(cub_splits(root, READING))[FIRST].truth
    expected = torch.zeros(SIZE, SIZE, dtype=torch.bool)
    expected[12:36, 12:24] = True  # rows 4 to 12 and columns 6 to 12 of the original
    assert truth is not None
    assert torch.equal(truth, expected)


def test_boxes_are_kept_and_are_the_truth_without_outlines(tmp_path: Path) -> None:
    splits = cub_splits(make_cub(tmp_path, segmentations=False), READING)
    sample = everything(splits)[FIRST]
    expected = torch.zeros(SIZE, SIZE, dtype=torch.bool)
    expected[12:36, 12:36] = True
    assert sample.boxes == ((12, 12, 36, 36),)
    assert sample.truth is not None
    assert torch.equal(sample.truth, expected)
    assert list(splits.absent) == ["segmentations/"]


def test_outlines_may_lie_beside_the_folder(root: Path) -> None:
    before = everything(cub_splits(root, READING))[FIRST].truth
    (root / "segmentations").rename(root.parent / "segmentations")
    after = everything(cub_splits(root, READING))[FIRST].truth
    assert before is not None
    assert after is not None
    assert torch.equal(before, after)


def test_parts_are_discs_and_empty_where_hidden(root: Path) -> None:
    parts = everything(cub_splits(root, READING))[FIRST].parts
    assert sorted(parts) == ["back", "left eye"]
    assert not parts["left eye"].any()
    radius, (x, y) = ListedImages.part_radius * SIZE, (18, 18)  # 9, 6 of the original
    for row, column in np.ndindex(SIZE, SIZE):
        near = (row + 0.5 - y) ** 2 + (column + 0.5 - x) ** 2 <= radius**2
        assert bool(parts["back"][row, column]) == (near or (row, column) == (y, x))


def test_keypoints_are_on_the_fitted_image_and_hidden_ones_left_out(root: Path) -> None:
    whole = everything(cub_splits(root, READING))
    for sample in whole.values():
        assert sample.keypoints == {"back": (pytest.approx(18), pytest.approx(18))}
    change(root / "parts" / "part_locs.txt", "1 2 0.0 0.0 0", "1 2 29.0 6.0 1")  # right of the box
    sample = everything(cub_splits(root, READING))[FIRST]
    assert sample.keypoints["left eye"] == pytest.approx((58, 18))
    cropped = everything(cropped_cub_splits(root, READING))[FIRST]
    assert cropped.keypoints == {"back": (pytest.approx(15), pytest.approx(15))}


def test_keypoints_pass_through_workers_and_their_absence_is_no_error(tmp_path: Path) -> None:
    with_parts = cub_splits(make_cub(tmp_path / "with"), READING).test
    loader = DataLoader(with_parts, batch_size=None, num_workers=1)  # type: ignore[arg-type]
    assert [sample.keypoints for sample in loader] == [with_parts[i].keypoints for i in range(4)]
    without = cub_splits(make_cub(tmp_path / "without", parts=False), READING)
    assert list(without.absent) == ["parts/part_locs.txt"]
    assert all(not sample.keypoints and not sample.parts for sample in everything(without).values())


@pytest.mark.parametrize(
    ("table", "old", "new", "quoted"),
    [
        ("part_locs.txt", "3 1 9.0 6.0 1", "3 1 9.0 6.0", "'3 1 9.0 6.0' has 4 entries instead of 5"),
        ("part_locs.txt", "3 1 9.0 6.0 1", "3 1 nine six 1", "'nine six' are no numbers"),
        ("parts.txt", "1 back", "1", "'1' has 1 entries instead of 2"),
    ],
)
def test_a_damaged_table_of_parts_is_quoted(root: Path, table: str, old: str, new: str, quoted: str) -> None:
    change(root / "parts" / table, old, new)
    with pytest.raises(UserError, match=rf"{table}.*{quoted}"):
        cub_splits(root, READING)


def test_cropped_to_the_box_with_truth_and_parts(root: Path) -> None:
    whole = np.asarray(Image.open(root / FIRST))
    sample = everything(cropped_cub_splits(root, READING))[FIRST]
    crop = Image.fromarray(whole[4:12, 6:18]).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    inner = torch.from_numpy(np.array(crop)).permute(2, 0, 1)
    # PIL's resize with a box looks a pixel beyond it; away from the edge both are the same.
    assert torch.equal(sample.image[:, 8:-8, 8:-8], inner[:, 8:-8, 8:-8])
    assert sample.truth is not None
    assert sample.truth[:, :30].all()
    assert not sample.truth[:, 30:].any()
    assert sample.boxes == ()
    rows, columns = sample.parts["back"].nonzero().float().mean(dim=0) + 0.5
    assert (float(columns), float(rows)) == pytest.approx((15, 15), abs=0.6)


def test_a_cropped_image_without_outline_has_no_truth(tmp_path: Path) -> None:
    sample = everything(cropped_cub_splits(make_cub(tmp_path, segmentations=False), READING))[FIRST]
    assert sample.truth is None


def test_fingerprint_follows_crop_boxes_and_outlines(root: Path) -> None:
    found = {cub_splits(root, READING).test.fingerprint, cropped_cub_splits(root, READING).test.fingerprint}
    change(root / "bounding_boxes.txt", "3 6.0 4.0", "3 6.0 5.0")
    found.add(cub_splits(root, READING).test.fingerprint)
    Image.new("L", (30, 20)).save(
        (root / FIRST.replace("images", "segmentations")).with_name("Black_footed_Albatross_0002_2.png")
    )
    found.add(cub_splits(root, READING).test.fingerprint)
    assert len(found) == 4


# What can be wrong


@pytest.mark.parametrize("name", ["images.txt", "train_test_split.txt", "bounding_boxes.txt", "classes.txt"])
def test_a_missing_official_file_is_named_with_its_place(root: Path, name: str) -> None:
    (root / name).unlink()
    with pytest.raises(MissingOfficialFile) as caught:
        cub_splits(root, READING)
    assert caught.value.files == {str(root / name): "CUB_200_2011.tgz"}
    assert str(root / name) in str(caught.value)


def test_one_level_too_high(root: Path) -> None:
    with pytest.raises(UserError, match=r"did you mean .*CUB_200_2011"):
        cub_splits(root.parent, READING)


def test_labels_for_missing_images_are_counted_and_named(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / FIRST).unlink()
    splits = cub_splits(root, READING)
    assert splits.problems == {"labels for missing images": (FIRST,)}
    assert FIRST not in everything(splits)
    assert FIRST in caplog.text


def test_a_class_of_missing_images_is_left_out(root: Path) -> None:
    change(
        root / "classes.txt", "2 002.Laysan_Albatross\n", "2 002.Laysan_Albatross\n3 003.Sooty_Albatross\n"
    )
    splits = cub_splits(root, READING)
    assert list(splits.train.classes) == ["Black footed Albatross", "Laysan Albatross"]
    assert splits.problems == {"classes without any image, left out": ("Sooty Albatross",)}


def test_a_class_with_one_image_left_has_no_validation_images(root: Path) -> None:
    folder = root / "images" / "001.Black_footed_Albatross"
    for path in sorted(folder.iterdir())[1:]:
        path.unlink()
    splits = cub_splits(root, READING)
    assert list(splits.val.labels) == [1]
    assert splits.problems["classes without test images"] == ("Black footed Albatross",)
    few = splits.problems["classes with too few training images to set one aside for validation"]
    assert few == ("Black footed Albatross",)


def test_an_unpacking_that_stopped_early_says_what_is_missing(root: Path) -> None:
    for path in (root / "images" / "002.Laysan_Albatross").iterdir():
        path.unlink()
    with pytest.raises(UserError, match=r"two classes are needed.*labels for missing images: .*Laysan"):
        cub_splits(root, READING)
    for path in (root / "images" / "001.Black_footed_Albatross").iterdir():
        path.unlink()
    with pytest.raises(UserError, match=r"has none of the images.*and 2 more"):
        cub_splits(root, READING)


def test_boxes_outside_are_cut_or_ignored_and_named(root: Path) -> None:
    change(root / "bounding_boxes.txt", "\n2 6.0 4.0 12.0 8.0", "\n2 20.0 4.0 99.0 8.0")
    change(root / "bounding_boxes.txt", "\n3 6.0 4.0 12.0 8.0", "\n3 40.0 4.0 12.0 8.0")
    change(root / "bounding_boxes.txt", "\n4 6.0 4.0 12.0 8.0", "\n4 18.0 4.0 12.9 8.0")  # within tolerance
    splits = cub_splits(root, READING)
    cut = splits.problems["boxes that reach outside the image, cut at its edge"]
    ignored = splits.problems["boxes without area in the image, ignored"]
    assert [("_0001_1" in name, "20, 4, 119, 12 in 30 × 20" in name) for name in cut] == [(True, True)]
    assert ["_0002_2" in name for name in ignored] == [True]
    boxes = {name[-8:-4]: sample.boxes for name, sample in everything(splits).items() if "/001" in name}
    assert boxes["01_1"] == ((40, 12, 60, 36),)
    assert boxes["02_2"] == ()


def test_broken_images_and_masks_are_left_out_and_named(root: Path) -> None:
    (root / FIRST).write_bytes(b"cut short")
    mask = "segmentations/002.Laysan_Albatross/Laysan_Albatross_0003_3.png"
    (root / mask).write_bytes(b"")
    splits = cub_splits(root, READING)
    assert list(splits.skipped) == [FIRST]
    assert [name.startswith(mask) for name in splits.problems["unreadable masks"]] == [True]
    assert len(everything(splits)) == 11


def test_a_damaged_table_is_an_error_that_quotes_the_line(root: Path) -> None:
    change(root / "bounding_boxes.txt", "3 6.0 4.0 12.0 8.0", "3 6.0 4.0")
    with pytest.raises(UserError, match=r"bounding_boxes.txt.*'3 6.0 4.0'"):
        cub_splits(root, READING)


def test_leaks_between_the_official_splits(root: Path) -> None:
    folder = root / "images" / "001.Black_footed_Albatross"
    (folder / "Black_footed_Albatross_0002_2.jpg").write_bytes((root / FIRST).read_bytes())
    with pytest.raises(UserError, match="same file in two splits"):
        cub_splits(root, READING)
    assert len(cub_splits(root, Reading(size=SIZE, allow_leaks=True)).leaks) == 1
