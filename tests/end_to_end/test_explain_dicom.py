"""`dprotonet explain RUN study.dcm --dicom OUT.dcm`, read back by pydicom."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.data.birds import Birds
from dprotonet.figures.canvas import Canvas
from dprotonet.figures.clinical_picture import BAND, draw_band
from original_layouts import write_dicom

pydicom = pytest.importorskip("pydicom")
QUICK = ["--iterations", "1"]


@pytest.fixture(scope="module")
def run(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(shutil.copytree(run_folder, tmp_path_factory.mktemp("explained") / "run"))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bird as a radiograph of two frames, of a patient."""
    bird = Birds(species=4, per_species=1, split="test", size=64)[0].image.float().mean(0)
    pixels = bird.numpy().astype(np.uint8)
    path = tmp_path_factory.mktemp("study") / "study.dcm"
    tags = {"PatientName": "Müller^Jürgen", "PatientID": "P-77", "SpecificCharacterSet": "ISO_IR 100"}
    uids = {"StudyInstanceUID": "1.2.3", "SeriesInstanceUID": "1.2.3.4"}
    frames = {"NumberOfFrames": 2, "PixelData": pixels.tobytes() * 2}
    return write_dicom(path, pixels, **tags, **uids, **frames)


def notice(width: int) -> np.ndarray:
    canvas = Canvas(width, BAND)
    draw_band(canvas, 0)
    return np.asarray(canvas.image)


def test_the_answer_is_filed_beside_the_image(
    run: str, study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "answers" / "answer.dcm"
    words = ["explain", run, str(study), "--dicom", str(out), "--top", "2", "--json", *QUICK]
    assert main(words) == 0
    (item,) = json.loads(capsys.readouterr().out)["explanations"]
    found, original = pydicom.dcmread(out), pydicom.dcmread(study)
    assert str(found.PatientName) == "Müller^Jürgen"
    assert (found.PatientID, found.StudyInstanceUID) == ("P-77", "1.2.3")
    (reference,) = found.SourceImageSequence
    assert reference.ReferencedSOPInstanceUID == original.SOPInstanceUID
    assert reference.ReferencedFrameNumber == 1
    assert item["dicom"]["SOPInstanceUID"] == found.SOPInstanceUID
    assert len(item["rows"]) == 2
    shown = found.pixel_array
    for part in (shown[:BAND], shown[-BAND:]):
        assert (part == notice(shown.shape[1])).all()
    before = out.read_bytes()
    assert main(words) == 0
    assert out.read_bytes() == before


def test_the_same_from_python(run: str, study: Path, tmp_path: Path) -> None:
    out = tmp_path / "answer.dcm"
    preset = dp.preset("fast", iterations=1)
    found = dp.load(run).explain_dicom(study, out, top=1, preset=preset)
    assert len(found.rows) == 1
    assert pydicom.dcmread(out).PatientID == "P-77"


def test_what_the_picture_says_depends_on_the_image(run: str, study: Path, tmp_path: Path) -> None:
    """Planted: a heatmap of another place makes another picture, at the very place."""
    from dprotonet.experiment.explaining.dicom_answer import answer_picture

    model = dp.load(run)
    (found,) = model.explain(study, top=1, preset=dp.preset("fast", iterations=1))
    heat = found.rows[0].input.heatmap
    heat.zero_()[:32, :32] = 1  # top left
    drawn = answer_picture(found, study, made_by="0" * 32).overlay.float()
    red, blue = drawn[0], drawn[2]
    assert (red - blue)[:30, :30].mean() > 30 > 0 > (red - blue)[34:, 34:].mean()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{photo}", "--dicom", "{out}/a.dcm"], "is not a DICOM file"),
        (["{garbage}", "--dicom", "{out}/a.dcm"], "is not a DICOM file"),
        (["{study}", "--dicom", "{study}"], "is the image itself"),
        (["{study}", "--dicom", "{out}"], "a file that ends in .dcm"),
        (["{study}", "{study}", "--dicom", "{out}/a.dcm"], "one image"),
        (["{study}"], "say where to"),
    ],
)
def test_what_cannot_be_is_said(
    words: list[str],
    said: str,
    run: str,
    study: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    garbage, photo = tmp_path / "garbage.dcm", tmp_path / "photo.png"
    garbage.write_bytes(b"no DICOM at all")
    photo.write_bytes(b"a photograph")
    places: dict[str, Any] = {"photo": photo, "garbage": garbage, "study": study, "out": tmp_path}
    assert main(["explain", run, *(word.format(**places) for word in words), *QUICK]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "a.dcm").exists()
