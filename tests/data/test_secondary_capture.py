"""An answer as DICOM: the right patient, the right study, nothing made up, read back by pydicom."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dprotonet.data.dicom import dicom_image
from dprotonet.data.secondary_capture import EMPTY_IF_ABSENT, secondary_capture
from dprotonet.errors import UserError
from original_layouts import write_dicom

pydicom = pytest.importorskip("pydicom")

PICTURE = torch.arange(3 * 5 * 7, dtype=torch.uint8).reshape(3, 5, 7)  # an odd number of bytes
STUDY = {"StudyInstanceUID": "1.2.3.4", "SeriesInstanceUID": "1.2.3.4.5", "SOPInstanceUID": "1.2.3.4.5.6"}
PATIENT = {
    "PatientName": "Doe^Jane",
    "PatientID": "P-77",
    "IssuerOfPatientID": "HOSPITAL",
    "PatientBirthDate": "19600229",
    "PatientSex": "F",
    "StudyDate": "20240101",
    "StudyTime": "101500",
    "AccessionNumber": "ACC-1",
    "ReferringPhysicianName": "House^Gregory",
    "StudyID": "S1",
    "BodyPartExamined": "CHEST",
}
NAMES = {
    "ISO_IR 100": "Müller^Jürgen",
    "ISO_IR 144": "Люкceмбypг",
    "ISO_IR 192": "Wang^XiaoDong=王^小东",
    "ISO 2022 IR 87": "Yamada^Tarou=山田^太郎=やまだ^たろう",
    "ISO 2022 IR 149": "Hong^Gildong=洪^吉洞=홍^길동",
}


def source(folder: Path, **tags: object) -> bytes:
    """A radiograph of a patient."""
    pixels = np.full((4, 6), 100, dtype=np.uint8)
    return write_dicom(folder / "source.dcm", pixels, **{**STUDY, **tags}).read_bytes()


def captured(source: bytes, *, picture: torch.Tensor = PICTURE, made_by: str = "network") -> Any:
    return pydicom.dcmread(pydicom.filebase.DicomBytesIO(secondary_capture(source, picture, made_by=made_by)))


def test_patient_and_study_are_those_of_the_source(tmp_path: Path) -> None:
    found = captured(source(tmp_path, **PATIENT))
    for keyword, value in {**PATIENT, "StudyInstanceUID": STUDY["StudyInstanceUID"]}.items():
        assert found[keyword].value == value, keyword


def test_the_picture_comes_back_as_it_was(tmp_path: Path) -> None:
    content = secondary_capture(source(tmp_path), PICTURE, made_by="network")
    found = pydicom.dcmread(pydicom.filebase.DicomBytesIO(content))
    assert (found.pixel_array == PICTURE.permute(1, 2, 0).numpy()).all()
    assert (np.asarray(dicom_image(content)) == found.pixel_array).all()  # and by our own reader
    assert len(found.PixelData) % 2 == 0


def test_it_says_what_it_is(tmp_path: Path) -> None:
    found = captured(source(tmp_path, Modality="DX", FrameOfReferenceUID="1.2.9", OperatorsName="Roe^Jim"))
    assert found.SOPClassUID == found.file_meta.MediaStorageSOPClassUID == "1.2.840.10008.5.1.4.1.1.7"
    assert found.SOPInstanceUID == found.file_meta.MediaStorageSOPInstanceUID
    assert (found.Modality, found.BurnedInAnnotation, found.ConversionType) == ("OT", "YES", "WSD")
    assert list(found.ImageType) == ["DERIVED", "SECONDARY"]
    assert found.SeriesDescription == "dprotonet: not for diagnosis"
    (reference,) = found.SourceImageSequence
    assert reference.ReferencedSOPInstanceUID == STUDY["SOPInstanceUID"]
    assert "ReferencedFrameNumber" not in reference
    assert "FrameOfReferenceUID" not in found  # the picture is not in the space of the image
    assert "OperatorsName" not in found


def test_nothing_is_made_up_of_a_patient_nobody_knows(tmp_path: Path) -> None:
    found = captured(source(tmp_path))
    assert not any(found[keyword].value for keyword in EMPTY_IF_ABSENT)
    assert not {"PatientAge", "IssuerOfPatientID", "SpecificCharacterSet", "StudyDescription"} & set(
        found.dir()
    )


@pytest.mark.parametrize("encoding", NAMES)
def test_names_keep_their_letters_and_bytes(encoding: str, tmp_path: Path) -> None:
    sets = ["", encoding] if "2022" in encoding else encoding
    data = source(tmp_path, SpecificCharacterSet=sets, PatientName=NAMES[encoding])
    content = secondary_capture(data, PICTURE, made_by="network")
    found = pydicom.dcmread(pydicom.filebase.DicomBytesIO(content))
    assert str(found.PatientName) == NAMES[encoding]
    stored = pydicom.dcmread(pydicom.filebase.DicomBytesIO(data)).get_item("PatientName").value
    assert stored
    assert stored in content


def test_the_same_answer_has_the_same_bytes_and_another_one_another_name(tmp_path: Path) -> None:
    data = source(tmp_path, **PATIENT)
    assert secondary_capture(data, PICTURE, made_by="a") == secondary_capture(data, PICTURE, made_by="a")
    first, other = captured(data, made_by="a"), captured(data, picture=PICTURE + 1, made_by="a")
    network = captured(data, made_by="b")
    renamed = captured(source(tmp_path, **{**PATIENT, "PatientName": "Doe^John"}), made_by="a")
    assert first.SeriesInstanceUID == other.SeriesInstanceUID != network.SeriesInstanceUID
    assert len({one.SOPInstanceUID for one in (first, other, network, renamed)}) == 4
    assert first.SeriesInstanceUID != STUDY["SeriesInstanceUID"]
    assert all(
        pydicom.uid.UID(uid).is_valid and uid.startswith("2.25.")
        for uid in (first.SOPInstanceUID, first.SeriesInstanceUID)
    )


def test_of_several_frames_the_one_that_was_looked_at_is_named(tmp_path: Path) -> None:
    frames = np.zeros((4, 6), dtype=np.uint8)
    tags = {**STUDY, "NumberOfFrames": 3, "PixelData": frames.tobytes() * 3}
    data = write_dicom(tmp_path / "source.dcm", frames, **tags).read_bytes()
    (reference,) = captured(data).SourceImageSequence
    assert reference.ReferencedFrameNumber == 1


def test_what_was_lossy_stays_known_as_lossy(tmp_path: Path) -> None:
    assert captured(source(tmp_path, LossyImageCompression="01")).LossyImageCompression == "01"


@pytest.mark.parametrize("lacking", ["StudyInstanceUID", "SeriesInstanceUID"])
def test_what_cannot_be_filed_is_refused(lacking: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"has no {lacking}, so an answer cannot be filed"):
        captured(source(tmp_path, **{lacking: ""}))


def test_what_is_no_dicom_is_refused() -> None:
    with pytest.raises(UserError, match="not a DICOM file"):
        captured(b"\xff\xd8 a photograph")
