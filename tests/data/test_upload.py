"""Images that came over the network: decoded as files are, and refused before they can do harm."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dprotonet.data.image import read_image
from dprotonet.data.upload import FORMATS, TooLarge, UploadLimits, read_upload
from dprotonet.errors import UserError
from original_layouts import write_dicom

NOISE = np.random.default_rng(0).integers(0, 256, (300, 500, 3), dtype=np.uint8)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_network_sees_what_it_sees_of_a_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"image.{kind.lower()}"
    Image.fromarray(NOISE).save(path, format=kind)
    found = read_upload(path.read_bytes(), size=64, limits=UploadLimits())
    assert torch.equal(found.pixels, read_image(path, size=64))
    assert found.picture.shape == (3, 300, 500)


def test_turned_and_shrunk_for_people() -> None:
    exif, stream = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    Image.new("RGB", (1280, 320)).save(stream, "JPEG", exif=exif)
    assert read_upload(stream.getvalue(), size=64, limits=UploadLimits()).picture.shape == (3, 640, 160)


def test_dicom(tmp_path: Path) -> None:
    path = tmp_path / "scan.dcm"
    write_dicom(path, np.arange(200 * 100, dtype=np.uint16).reshape(200, 100))
    data = path.read_bytes()
    found = read_upload(data, size=64, limits=UploadLimits())
    assert torch.equal(found.pixels, read_image(path, size=64))
    with pytest.raises(TooLarge, match="100 × 200"):
        read_upload(data, size=64, limits=UploadLimits(megapixels=0.019))


def test_limits_are_met_exactly() -> None:
    stream = io.BytesIO()
    Image.new("L", (200, 100)).save(stream, "PNG")
    data = stream.getvalue()
    read_upload(data, size=32, limits=UploadLimits(megapixels=0.02, megabytes=len(data) / 1e6))
    with pytest.raises(TooLarge, match="200 × 100"):
        read_upload(data, size=32, limits=UploadLimits(megapixels=0.0199))
    with pytest.raises(TooLarge, match="MB"):
        read_upload(data, size=32, limits=UploadLimits(megabytes=(len(data) - 1) / 1e6))


def test_formats_that_start_programs_are_not_tried() -> None:
    """PIL itself would take these for an image."""
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n"
    assert Image.open(io.BytesIO(postscript)).format == "EPS"
    with pytest.raises(UserError, match="no image that can be read"):
        read_upload(postscript, size=32, limits=UploadLimits())
