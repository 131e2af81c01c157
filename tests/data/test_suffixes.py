"""Endings of files: which are images, what is told of the others, and DICOM among them."""

import logging
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.data.conftest import names, paint, refusal, scan

from dprotonet import extras
from dprotonet.data.folder import loose_images
from dprotonet.data.suffixes import check_dicom, counted_endings, ignored_words
from dprotonet.errors import UserError
from original_layouts import write_dicom


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def radiograph(path: Path, seed: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_dicom(path, np.random.default_rng(seed).integers(0, 4096, (8, 8), dtype=np.uint16))


def test_endings_are_counted_the_commonest_first() -> None:
    counts = counted_endings(["a.txt", "b.XYZ", "c.xyz", "IM0001", "d.tar.gz"])
    assert ignored_words(counts) == "ignored by their ending: 2 .xyz, 1 .txt, 1 without an ending, 1 .gz"
    assert ignored_words({}) == ""


def test_jfif_is_jpeg(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    Image.new("RGB", (9, 6), (200, 10, 30)).save(root / "test" / "tit" / "new.JFIF", format="JPEG")
    splits = scan(root)
    assert "test/tit/new.JFIF" in names(splits.test)
    assert (told(caplog), splits.ignored) == ([], {})


def test_dicom_is_read(root: Path) -> None:
    pytest.importorskip("pydicom")
    for number in range(2):
        radiograph(root / "test" / "tit" / f"x{number}.dcm", number)
    data = scan(root).test
    sample = data[names(data).index("test/tit/x1.dcm")]
    assert sample.image.shape == (3, 8, 8)
    assert sample.image.float().std() > 10


def test_dicom_without_its_package_is_refused_before_a_file_is_opened(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    (root / "train" / "tit" / "x.dcm").write_bytes(b"")
    monkeypatch.setattr(extras, "import_module", missing)
    opened: list[int] = []
    message = refusal(root, on_progress=lambda done, total: opened.append(done))
    assert "reading DICOM (1 files such as train/tit/x.dcm) needs the package pydicom" in message
    assert "pip install 'dprotonet[data]'" in message
    assert opened == []
    check_dicom(["a.png"])  # nobody needs the package


def test_other_endings_are_one_warning(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(6):
        (root / "train" / "robin" / f"{number}.xyz").write_bytes(b"an image of another kind")
    (root / "train" / "tit" / ".DS_Store").write_bytes(b"hidden")
    (root / "test" / "tit" / "notes.txt").write_text("")
    splits = scan(root)
    assert told(caplog) == ["ignored by their ending: 6 .xyz, 1 .txt"]
    assert splits.ignored == {".xyz": 6, ".txt": 1}


def test_masks_of_other_endings_are_told_too(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    paint(root / "masks" / "test" / "tit" / "0.bmp")
    paint(root / "masks" / "test" / "tit" / "1.png")
    data = scan(root).test
    assert told(caplog) == ["ignored by their ending: 1 .bmp in masks/ (masks are .png)"]
    assert [data[names(data).index(f"test/tit/{number}.png")].truth is None for number in (0, 1)] == [1, 0]


def test_ignored_files_do_not_change_the_fingerprint(root: Path) -> None:
    before = scan(root).train.fingerprint
    (root / "train" / "robin" / "notes.txt").write_text("")
    assert scan(root).train.fingerprint == before


def test_loose_images(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UserError, match=r"no readable image \(ignored by their ending: 1 \.txt\); .*\.dcm"):
        loose_images(tmp_path, size=8)
    paint(tmp_path / "a.png")
    Image.new("RGB", (9, 6)).save(tmp_path / "b.jfif", format="JPEG")
    assert names(loose_images(tmp_path, size=8)) == ["a.png", "b.jfif"]
    assert told(caplog) == ["ignored by their ending: 1 .txt"]
