"""A picture as a DICOM object that is filed beside the image it is about: same patient, same study.

A Secondary Capture Image (DICOM PS3.3, A.8.1) in a series of its own. Patient and study are copied as they
stand, bytes and character set included; what the original lacks stays empty and is never made up. Nothing in
it depends on the clock or on chance: the same picture of the same image is the same file, by the same UIDs.
What the picture shows is left to others.
"""

import hashlib
import uuid
from copy import deepcopy
from io import BytesIO
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dprotonet.data.dicom import dicom_header, frames_in
from dprotonet.errors import UserError
from dprotonet.extras import import_extra
from dprotonet.version import __version__

SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7"
EXPLICIT_LITTLE_ENDIAN = "1.2.840.10008.1.2.1"
DESCRIPTION = "dprotonet: not for diagnosis"
DERIVATION = "answer of an image classifier with heatmaps of its evidence over the image"

REQUIRED = ("StudyInstanceUID", "SeriesInstanceUID", "SOPClassUID", "SOPInstanceUID")
"""Without these an image cannot be filed beside or referred to."""
EMPTY_IF_ABSENT = (
    *("PatientName", "PatientID", "PatientBirthDate", "PatientSex"),
    *("StudyDate", "StudyTime", "ReferringPhysicianName", "StudyID", "AccessionNumber"),
)
"""Attributes of type 2: always there, empty where nobody knows."""
IF_PRESENT = (
    *("SpecificCharacterSet", "TimezoneOffsetFromUTC", "IssuerOfPatientID", "PatientAge"),
    *("PatientIdentityRemoved", "DeidentificationMethod", "DeidentificationMethodCodeSequence"),
    *("StudyDescription", "BodyPartExamined", "Laterality"),
    *("LossyImageCompression", "LossyImageCompressionRatio", "LossyImageCompressionMethod"),
)


def check_source(data: bytes, *, name: str) -> None:
    """A UserError where a file is no DICOM image that an answer can be filed beside."""
    try:
        header = dicom_header(data)
    except ValueError:
        raise UserError(f"{name} is not a DICOM file; an answer as DICOM needs the DICOM image") from None
    lacking = [keyword for keyword in REQUIRED if not header.get(keyword)]
    if lacking:
        raise UserError(
            f"{name} has no {' and no '.join(lacking)}, so an answer cannot be filed beside it; "
            "take the file as the archive sent it"
        )


def secondary_capture(source: bytes, picture: Tensor, *, made_by: str) -> bytes:
    """The picture (3, H, W) uint8 as a DICOM file about the DICOM file `source`.

    `made_by` tells networks apart: answers of one network about images of one series are one series.
    """
    if picture.dtype != torch.uint8 or picture.ndim != 3 or picture.shape[0] != 3:
        raise ValueError(f"a picture must be uint8 (3, H, W), not {picture.dtype} {tuple(picture.shape)}")
    check_source(source, name="the source")
    pydicom = import_extra("pydicom", extra="data", needed_for="writing DICOM")
    original, capture = dicom_header(source), pydicom.Dataset()
    _copy_identity(original, capture)
    _describe(original, capture, made_by)
    capture.SourceImageSequence = [_reference(pydicom, original)]
    _put_pixels(capture, picture)
    _identify(pydicom, capture)
    return _as_file(capture)


def _copy_identity(original: Any, capture: Any) -> None:
    """Whose image it is and of which study; values keep the bytes that they have in their character set."""
    for keyword in (*REQUIRED[:1], *EMPTY_IF_ABSENT, *IF_PRESENT):
        if keyword in original:
            capture[keyword] = deepcopy(original[keyword])
        elif keyword in EMPTY_IF_ABSENT:
            setattr(capture, keyword, "")


def _describe(original: Any, capture: Any, made_by: str) -> None:
    """What it is and how it came about, in plain ASCII, which every character set has."""
    about = f"{original.SeriesInstanceUID} {made_by} {__version__}"
    said = {
        "SOPClassUID": SECONDARY_CAPTURE,
        "SeriesInstanceUID": _uid(about.encode()),
        "Modality": "OT",
        "ConversionType": "WSD",  # workstation
        "ImageType": ["DERIVED", "SECONDARY"],
        "BurnedInAnnotation": "YES",
        "SeriesDescription": DESCRIPTION,
        "DerivationDescription": DERIVATION,
        "Manufacturer": "dprotonet",
        "SoftwareVersions": __version__,
        "SecondaryCaptureDeviceManufacturer": "dprotonet",
        "SecondaryCaptureDeviceSoftwareVersions": __version__,
        "SeriesNumber": 9000,
        "InstanceNumber": original.get("InstanceNumber") or 1,
        "PatientOrientation": None,
    }
    for keyword, value in said.items():
        setattr(capture, keyword, value)


def _reference(pydicom: Any, original: Any) -> Any:
    """The image it is about; of several frames the one that was looked at."""
    reference, purpose = pydicom.Dataset(), pydicom.Dataset()
    reference.ReferencedSOPClassUID = original.SOPClassUID
    reference.ReferencedSOPInstanceUID = original.SOPInstanceUID
    if frames_in(original) > 1:
        reference.ReferencedFrameNumber = 1
    purpose.CodeValue, purpose.CodingSchemeDesignator = "121322", "DCM"
    purpose.CodeMeaning = "Source image for image processing operation"
    reference.PurposeOfReferenceCodeSequence = [purpose]
    return reference


def _put_pixels(capture: Any, picture: Tensor) -> None:
    capture.SamplesPerPixel, capture.PhotometricInterpretation = 3, "RGB"
    capture.PlanarConfiguration, capture.PixelRepresentation = 0, 0
    capture.Rows, capture.Columns = picture.shape[1:]
    capture.BitsAllocated, capture.BitsStored, capture.HighBit = 8, 8, 7
    pixels = np.ascontiguousarray(picture.cpu().permute(1, 2, 0).numpy()).tobytes()
    capture.PixelData = pixels + b"\0" * (len(pixels) % 2)
    capture["PixelData"].VR = "OB"


def _identify(pydicom: Any, capture: Any) -> None:
    """Named after its content: whatever differs has another name."""
    capture.SOPInstanceUID = "2.25.0"  # the content without its name
    _put_meta(pydicom, capture)
    capture.SOPInstanceUID = _uid(_as_file(capture))
    _put_meta(pydicom, capture)


def _put_meta(pydicom: Any, capture: Any) -> None:
    meta = pydicom.dataset.FileMetaDataset()
    meta.MediaStorageSOPClassUID = capture.SOPClassUID
    meta.MediaStorageSOPInstanceUID = capture.SOPInstanceUID
    meta.TransferSyntaxUID = EXPLICIT_LITTLE_ENDIAN
    capture.file_meta = meta


def _as_file(capture: Any) -> bytes:
    stream = BytesIO()
    capture.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


def _uid(content: bytes) -> str:
    """A UID of the form that DICOM has for UUIDs (PS3.5, B.2), from a digest instead of chance."""
    digest = hashlib.blake2b(content, digest_size=16).digest()
    return f"2.25.{uuid.UUID(bytes=digest, version=5).int}"
