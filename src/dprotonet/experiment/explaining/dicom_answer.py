"""An answer for the archive of a clinic: one picture, as DICOM, beside the image it is about.

Of the rows of an explanation it shows the places in this image, never the training images: they are of other
people. How the picture is drawn is left to `figures.clinical_picture`, how it is filed to
`data.secondary_capture`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dprotonet.data.dicom import SUFFIX, dicom_header, frames_in
from dprotonet.data.image import contents
from dprotonet.data.secondary_capture import check_source, secondary_capture
from dprotonet.errors import UserError
from dprotonet.experiment.explaining.explain import ExplainedPrediction, ExplainedRow
from dprotonet.experiment.runs.familiarity import warning_of
from dprotonet.experiment.trained.image_like import picture
from dprotonet.figures import overlay
from dprotonet.figures.clinical_picture import LARGE, ClinicalPicture, PlacedEvidence
from dprotonet.figures.style import number, sentence
from dprotonet.files import whole
from dprotonet.network import Network
from dprotonet.ops import upsample
from dprotonet.percent import percent
from dprotonet.training.checkpoint import weights_digest
from dprotonet.version import __version__

_OTHERS = 3  # classes named after the answer


def check_dicom(image: Path, out: Path) -> None:
    """Before the work: whether an answer to this image can be filed beside it, and written."""
    if image.suffix.lower() != SUFFIX:
        raise UserError(
            f"{image} is not a DICOM file ({SUFFIX}); an answer as DICOM takes patient and study from one"
        )
    check_source(contents(image), name=str(image))
    if out.is_dir() or out.suffix.lower() != SUFFIX:
        raise UserError(f"--dicom {out} is to be a file that ends in {SUFFIX}")
    if out.resolve() == image.resolve():
        raise UserError(f"--dicom {out} is the image itself; name another file")


def save_dicom(explained: ExplainedPrediction, network: Network, image: Path, out: Path) -> dict[str, Any]:
    """Write the answer to the DICOM file `image`, and say by which names it is found there."""
    check_dicom(image, out)
    made_by = weights_digest(network)
    drawn = answer_picture(explained, image, made_by=made_by).draw()
    pixels = torch.from_numpy(np.array(drawn)).permute(2, 0, 1)
    content = secondary_capture(contents(image), pixels, made_by=made_by)
    with whole(out) as temporary:
        temporary.write_bytes(content)
    header = dicom_header(content)
    names = ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID")
    return {"file": str(out), **{name: str(header[name].value) for name in names}}


def answer_picture(explained: ExplainedPrediction, image: Path, *, made_by: str) -> ClinicalPicture:
    """What is shown of an explained prediction, in the proportions of the image itself."""
    shown, said = picture(image, longest=LARGE), explained.prediction
    likely = sorted(said.probabilities.items(), key=lambda pair: -pair[1])[1 : _OTHERS + 1]
    fitted = "calibrated" if said.calibrated else "not calibrated"
    return ClinicalPicture(
        image=shown,
        overlay=_coloured(shown, _all_heat(explained.rows)),
        answer=said.class_name,
        probability=f"{percent(said.probability)}, {fitted}",
        others=", ".join(f"{name} {percent(share)}" for name, share in likely),
        evidence=[
            PlacedEvidence(_coloured(shown, row.input.heatmap.cpu()), _words(row)) for row in explained.rows
        ],
        warning=sentence(warning_of(said.distance)),
        facts=_facts(explained, contents(image), made_by),
    )


def _all_heat(rows: Sequence[ExplainedRow]) -> Tensor:
    """The heatmaps (H, W) of what speaks for the class, each counted by its points, the hottest place 1."""
    total = sum((max(row.item.contribution, 0.0) * row.input.heatmap.cpu() for row in rows), torch.zeros(1))
    assert isinstance(total, Tensor)
    heat = total if total.ndim == 2 else torch.zeros_like(rows[0].input.heatmap.cpu())
    return heat / heat.max().clamp_min(1e-12)


def _coloured(image: Tensor, heatmap: Tensor) -> Tensor:
    """The network saw the image squashed to a square; its heat is stretched back."""
    return overlay(image, upsample(heatmap, (image.shape[-2], image.shape[-1])).clamp(0, 1))


def _words(row: ExplainedRow) -> list[str]:
    item, mark = row.item, row.mark
    points = f"{number(item.contribution, signed=True, decimals=3)} points"
    said = [f"{item.class_name} #{item.prototype}", points, item.ahead]
    if mark is None:
        return said
    worth = ["! unlike its training image"] if mark.differ else []
    return [*said, f"{mark.symbol} {mark.word}", *worth]


def _facts(explained: ExplainedPrediction, source: bytes, made_by: str) -> str:
    frames, side = frames_in(dicom_header(source)), explained.image.shape[-1]
    frame = f"Frame 1 of {frames} only. " if frames > 1 else ""
    preset = explained.rows[0].input.facts["preset"]
    return (
        f"{frame}The network saw the image at {side} × {side} pixels. A heatmap shows which pixels keep a "
        f"resemblance to training images alive; it does not outline a finding. Heatmaps by MDM, {preset}. "
        f"Network {made_by[:12]}, dprotonet {__version__}."
    )
