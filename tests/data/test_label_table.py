"""labels.csv: what is read, and what is refused by its line."""

from pathlib import Path

import pytest

from dprotonet.data.label_table import read_label_table
from dprotonet.errors import UserError


def table(folder: Path, text: str) -> Path:
    path = folder / "labels.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_list_of_labels(tmp_path: Path) -> None:
    found = read_label_table(table(tmp_path, "file,labels\na.png,effusion;mass\nb/c.png,\nd.png, mass \n"))
    assert found.labels == ("effusion", "mass")
    assert [set(row.labels) for row in found.rows] == [{"effusion", "mass"}, set(), {"mass"}]
    assert [row.line for row in found.rows] == [2, 3, 4]
    assert not found.has_splits


def test_a_column_for_each_label_keeps_their_order(tmp_path: Path) -> None:
    text = "file,split,patient,mass,effusion\na.png,train,p1,1,0\nb.png,test,p2,0,1\n"
    found = read_label_table(table(tmp_path, text))
    assert found.labels == ("mass", "effusion")
    assert [(row.split, row.patient) for row in found.rows] == [("train", "p1"), ("test", "p2")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,labels\na.png,x\n", "line 1: no column 'file'"),
        ("file,labels,age\na.png,x,3\n", "remove age"),
        ("file\na.png\n", "no column of labels"),
        ("file,x,x\na.png,0,1\n", "the column 'x' comes twice"),
        ("file,x\na.png,1\nb.png,maybe\n", "line 3: x is 'maybe'; it must be 0 or 1"),
        ("file,x\na.png,1\nb.png,\n", "line 3: x is ''"),
        ("file,labels\na.png,x;x\n", "line 2: labels are 'x;x'"),
        ("file,labels\na.png,x;\n", "line 2: labels are 'x;'"),
        ("file,labels\na.png,x\na.png,\n", "line 3: a.png is in line 2 already"),
        ("file,labels,split\na.png,x,dev\n", "line 2: split is 'dev'"),
        ("file,labels\n../a.png,x\n", "line 2: file is '../a.png'"),
        ("file,labels\n/a.png,x\n", "line 2: file is '/a.png'"),
        ("file,labels\na.png\n", "line 2: 1 cells, and the header has 2"),
        ("file,labels\n", "names no image"),
        ("file,labels\na.png,\n", "no image has any label"),
        ("file,x,y\na.png,1,0\nb.png,0,0\n", "no image has the label 'y'"),
        ("file,x,y\na.png,1,0\nb.png,1,1\n", "all images have the label 'x'"),
        (
            "file,labels,split,patient\na.png,x,train,p\nb.png,,test,p\n",
            "line 3: patient p is in test here and in train in line 2",
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = table(tmp_path, text)
    with pytest.raises(UserError) as caught:
        read_label_table(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_no_table(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"labels\.csv is missing"):
        read_label_table(tmp_path / "labels.csv")


def test_a_table_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_bytes(b"file,labels\na.png,\xff\xfe\n")
    with pytest.raises(UserError, match="UTF-8"):
        read_label_table(tmp_path / "labels.csv")
