"""Several labels explained on one sheet: for each finding its own prototypes, with their places and points.

Each label is an answer of its own: its bias and what its prototypes say add up to its logit. Places are found
as for one class (`explain`).
"""

import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.experiment.explaining.explain import ExplainedRow, OnStep, drawn_row, explained_rows
from dprotonet.experiment.explaining.explanation_files import save_rows, told_row
from dprotonet.experiment.explaining.pictures import save_picture
from dprotonet.experiment.runs.familiarity import warning_of
from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.experiment.trained.findings import Finding, Findings
from dprotonet.experiment.trained.image_like import ImageLike, image_size
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.figures import Decision, decision_sheet, stack
from dprotonet.figures.style import number
from dprotonet.files import write_text
from dprotonet.interpretation.mdm import Preset

RESULT = "explanation.json"


@dataclass(frozen=True, eq=False)
class ExplainedFinding:
    """One label and the places of the prototypes that say most for it."""

    finding: Finding
    rows: tuple[ExplainedRow, ...]

    @property
    def rest(self) -> float:
        """The bias, and what all prototypes without a row contribute."""
        return self.finding.logit - sum(row.item.contribution for row in self.rows)


@dataclass(frozen=True, eq=False)
class ExplainedFindings:
    """All findings of an image (3, H, W) uint8 as it was seen; `image_size` is that of the image itself."""

    image: Tensor
    found: Findings
    groups: tuple[ExplainedFinding, ...]
    image_size: tuple[int, int]
    weights: tuple[float, float] = (0.5, 0.5)  # α and β of Eq. (18) on the sheet

    def picture(self, title: str = "") -> Image.Image:
        """One sheet: a group of rows for each finding, each adding up to its own logit."""
        return stack([self._drawn(group, title or self.found.name) for group in self.groups])

    def _drawn(self, group: ExplainedFinding, title: str) -> Image.Image:
        rows = [drawn_row(row, self.image, self.weights) for row in group.rows]
        decision = Decision(
            title,
            [(one.name, one.probability) for one in self.found.labels],
            rows,
            group.rest,
            group.finding.logit,
            explained=group.finding.name,
            notice=warning_of(self.found.distance),
            word="present" if group.finding.present else "not present",
            others=f"bias ({number(group.finding.bias, signed=True)}) and all other prototypes",
        )
        return decision_sheet(self.image, decision, rows)

    def _repr_png_(self) -> bytes:
        """As a notebook shows it: the sheet."""
        stream = io.BytesIO()
        self.picture().save(stream, format="PNG")
        return stream.getvalue()


def explain_findings(
    model: TrainedModel,
    images: Sequence[ImageLike],
    *,
    label: str | None = None,
    top: int = 3,
    preset: str | Preset = "fast",
    on_step: OnStep | None = None,
) -> list[ExplainedFindings]:
    """Each label that an image has, or the likeliest if none, or `label`: `top` prototypes of each."""
    if top < 1:
        raise UserError(f"top is {top}; at least one prototype has to be explained")
    model.check_sources()
    found = model.findings(images)
    asked = [one.shown if label is None else (one.of(label),) for one in found]
    chosen = [[finding.evidence[:top] for finding in some] for some in asked]
    pixels = [model.pixels(image) for image in images]
    flat: list[list[EvidenceItem]] = [[item for items in some for item in items] for some in chosen]
    rows = explained_rows(model, pixels, flat, preset=preset, on_step=on_step)
    shown = model.config.explaining
    weights = shown.image_weight, shown.heatmap_weight
    return [
        ExplainedFindings(image, one, _groups(some, items, own), image_size(given), weights)
        for image, one, some, items, own, given in zip(
            pixels, found, asked, chosen, rows, images, strict=True
        )
    ]


def _groups(
    findings: Sequence[Finding], items: Sequence[Sequence[EvidenceItem]], rows: Sequence[ExplainedRow]
) -> tuple[ExplainedFinding, ...]:
    """The rows of an image, given one after the other, by finding."""
    coming = iter(rows)
    return tuple(
        ExplainedFinding(finding, tuple(next(coming) for _ in own))
        for finding, own in zip(findings, items, strict=True)
    )


def save_findings(explained: ExplainedFindings, folder: Path, *, title: str = "") -> dict[str, Any]:
    """The sheet, and for every row its maps and overlays; what explanation.json says."""
    save_picture(explained.picture(title), folder / "sheet.png")
    content = findings_told(explained)
    place = 1
    for group, told in zip(explained.groups, content["findings"], strict=True):
        told["rows"] = save_rows(explained, group.rows, folder, first=place)
        place += len(group.rows)
    content["sheet"] = "sheet.png"
    write_text(folder / RESULT, json.dumps(content, ensure_ascii=False, indent=1))
    return {"folder": str(folder), **content}


def findings_told(explained: ExplainedFindings) -> dict[str, Any]:
    """What explanation.json says but for the names of files."""
    found = explained.found
    return {
        "name": found.name,
        "task": "multilabel",
        "familiar": found.familiar,
        "distance": found.distance,
        "probabilities": {one.name: one.probability for one in found.labels},
        "findings": [
            {
                **{key: value for key, value in asdict(group.finding).items() if key != "evidence"},
                "present": group.finding.present,
                "rest": group.rest,
                "rows": [told_row(explained.image_size, row) for row in group.rows],
            }
            for group in explained.groups
        ],
        "size": list(explained.image.shape[-2:]),
        "image_size": list(explained.image_size),
    }
