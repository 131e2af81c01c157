"""Lists of data sets that are damaged: an error by the name of the file; numbers are digits, and finite."""

from pathlib import Path

import pytest

from dprotonet.config import DataConfig
from dprotonet.data.problems import finite_number, some
from dprotonet.errors import UserError
from dprotonet.experiment.build.data import build_splits

HEAD = "patientId,x,y,width,height,Target\n"


def refused(place: Path, table: bytes, match: str) -> None:
    (place / "stage_2_train_images").mkdir(exist_ok=True)
    (place / "stage_2_train_labels.csv").write_bytes(table)
    with pytest.raises(UserError, match=match):
        build_splits(DataConfig(data=f"rsna:{place}"))


def test_a_table_of_another_encoding(tmp_path: Path) -> None:
    refused(tmp_path, (HEAD + "M\xfcller,1,2,3,4,1\n").encode("latin-1"), "not a table in UTF-8")


def test_a_cell_without_end(tmp_path: Path) -> None:
    refused(tmp_path, (HEAD + "a" * 200_000 + ",1,2,3,4,1\n").encode(), "not a table in UTF-8")


@pytest.mark.parametrize("cell", ["nan", "inf", "1e400", "٣", "1_0", "0x1", "½"])
def test_numbers_that_are_none(cell: str, tmp_path: Path) -> None:
    refused(tmp_path, f"{HEAD}p,{cell},2,3,4,1\n".encode(), "line 2 is not")
    with pytest.raises(ValueError, match="not a number"):
        finite_number(cell)


@pytest.mark.parametrize(("cell", "value"), [("1", 1), (" 2.50", 2.5), ("-.5e1", -5), ("+7.", 7)])
def test_numbers_that_are_some(cell: str, value: float) -> None:
    assert finite_number(cell) == value


def test_messages_have_an_end() -> None:
    assert len(some(["a" * 100_000])) < 300


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    tables = {
        "images.txt": "1 " + "a" * 5000 + "\n2 b\0.jpg\n",
        "image_class_labels.txt": "1 1\n2 1\n",
        "classes.txt": "1 one\n",
        "train_test_split.txt": "1 1\n2 1\n",
        "bounding_boxes.txt": "1 1 1 2 2\n2 1 1 2 2\n",
    }
    for name, text in tables.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match="none of the images that its files name"):
        build_splits(DataConfig(data=f"cub:{tmp_path}"))
