"""Explanations as files: maps as .npy, pictures as .png, everything else in explanation.json."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from dprotonet.experiment.explaining.explain import ExplainedPrediction, ExplainedRow
from dprotonet.experiment.explaining.explain_contrast import ContrastPlaces, ExplainedContrast
from dprotonet.experiment.explaining.pictures import save_picture
from dprotonet.experiment.explaining.saliency import Saliency
from dprotonet.experiment.trained.class_contrast import ContrastRow
from dprotonet.files import whole, write_text
from dprotonet.interpretation.base import Explanation

RESULT = "explanation.json"


def folder_for(out: Path, number: int, name: str) -> Path:
    """A folder of its own for every image; the number keeps images of one name apart."""
    return out / f"{number:04d}-{Path(name).stem or 'image'}"


def save_explained(explained: ExplainedPrediction, folder: Path, *, title: str = "") -> dict[str, Any]:
    """A sheet for people and for every row its maps and overlays; what explanation.json says."""
    save_picture(explained.picture(title), folder / "sheet.png")
    rows = save_rows(explained, explained.rows, folder)
    return _written({**told(explained), "rows": rows, "sheet": "sheet.png"}, folder)


def told(explained: ExplainedPrediction) -> dict[str, Any]:
    """What explanation.json says but for the names of files."""
    return {
        **{key: value for key, value in asdict(explained.prediction).items() if key != "evidence"},
        "rows": [told_row(explained.image_size, row) for row in explained.rows],
        "rest": explained.rest,
        "size": list(explained.image.shape[-2:]),
        "image_size": list(explained.image_size),
        **_facts(explained.rows[0].input),
    }


def save_contrast(explained: ExplainedContrast, folder: Path, *, title: str = "") -> dict[str, Any]:
    """A sheet with both sides, the map of the difference, and all rows; what explanation.json says."""
    save_picture(explained.picture(title), folder / "sheet.png")
    found, prediction = explained.contrast, asdict(explained.prediction)
    folded = found.folded(len(explained.rows))
    content = {
        **{key: value for key, value in prediction.items() if key != "evidence"},
        "explained": found.class_name,
        "versus": found.versus,
        "versus_replaced": explained.replaced,
        "explained_logit": found.logit,
        "versus_logit": found.versus_logit,
        "difference": found.difference,
        "sentence": found.sentence,
        "rows": [
            _save_contrast_row(row, place, folder, explained) for place, row in enumerate(explained.rows, 1)
        ],
        "folded": asdict(folded),
        "all_rows": [_told(row) for row in found.rows],
        "size": list(explained.image.shape[-2:]),
        "image_size": list(explained.image_size),
        "node": explained.map.node,
        **boxes(explained.map, explained.image_size),
        "passes": explained.map.passes._asdict(),
        **_facts(explained.map),
        "files": _save_maps(folder, explained.map, raw=True, stem="difference-")
        | _save_pictures(folder, explained.map, explained.image, stem="difference-"),
        "sheet": "sheet.png",
    }
    return _written(content, folder)


def _told(row: ContrastRow) -> dict[str, Any]:
    """A row in numbers; the prototypes shown are those of either class that say most."""
    return {
        "name": row.name,
        "part": row.part,
        "points": row.points,
        "versus_points": row.other_points,
        "difference": row.difference,
        "prototypes": list(row.prototypes),
        "own": None if row.own is None else row.own.prototype,
        "other": None if row.other is None else row.other.prototype,
    }


def _save_contrast_row(
    shown: ContrastPlaces, place: int, folder: Path, explained: ExplainedContrast
) -> dict[str, Any]:
    stem = f"{place}-row-image-"
    return {
        **_told(shown.row),
        **shown.mark.told(),
        "place_warning": shown.warning,
        "marks": {f"{item.prototype}": shown.marks[item.prototype].told() for item in shown.row.pair},
        **boxes(shown.place, explained.image_size),
        "files": _save_maps(folder, shown.place, raw=True, stem=stem)
        | _save_pictures(folder, shown.place, explained.image, stem=stem),
    }


def save_saliency(item: Saliency, folder: Path, *, model: str, method: str) -> dict[str, Any]:
    """The maps and the pictures of one image; what explanation.json says."""
    content = {
        "name": item.name,
        "model": model,
        "method": method,
        "familiar": item.familiar,
        "distance": item.distance,
        "label": item.label,
        "class_name": item.class_name,
        "versus": item.versus,
        "versus_replaced": item.replaced,
        "left_out": item.left_out,
        "task": item.task,
        "probability": item.probability,
        **({} if item.value is None else {"value": item.value}),
        "likely": [{"class_name": name, "probability": share} for name, share in item.likely],
        "node": item.explanation.node,
        "size": list(item.explanation.heatmap.shape),
        "image_size": list(item.image_size),
        **boxes(item.explanation, item.image_size),
        "kept": item.explanation.kept,
        "passes": item.explanation.passes._asdict(),
        **_facts(item.explanation),
        "files": _save_maps(folder, item.explanation, raw=True)
        | _save_pictures(folder, item.explanation, item.picture),
    }
    return _written(content, folder)


def boxes(explanation: Explanation, image_size: Sequence[int]) -> dict[str, dict[str, int]]:
    """The box in pixels of the map, which the network saw squashed to a square, and in those of the image."""
    box = explanation.box()
    stretched = box.stretched(explanation.raw.shape, image_size)
    return {"box": box._asdict(), "box_in_image": stretched._asdict()}


class Explained(Protocol):
    """An image whose rows are saved: as it was seen, and height and width of the image itself."""

    @property
    def image(self) -> Tensor: ...
    @property
    def image_size(self) -> tuple[int, int]: ...


def save_rows(
    explained: Explained, rows: Sequence[ExplainedRow], folder: Path, *, first: int = 1
) -> list[dict[str, Any]]:
    """Maps and overlays of every row; files are numbered from `first`."""
    return [_save_row(explained, row, place, folder) for place, row in enumerate(rows, first)]


def _save_row(explained: Explained, row: ExplainedRow, place: int, folder: Path) -> dict[str, Any]:
    stem = f"{place}-prototype-{row.item.prototype:04d}"
    image, source = f"{stem}-image-", f"{stem}-source-"
    return {
        **told_row(explained.image_size, row),
        "files": _save_maps(folder, row.input, raw=True, stem=image)
        | _save_pictures(folder, row.input, explained.image, stem=image),
        "source_files": _save_maps(folder, row.source, raw=False, stem=source)
        | _save_pictures(folder, row.source, row.source_image, stem=source),
    }


def told_row(image_size: Sequence[int], row: ExplainedRow) -> dict[str, Any]:
    """A row in numbers; `image_size` is height and width of the image itself."""
    return {
        **asdict(row.item),
        "ahead": row.item.ahead,
        **({} if row.mark is None else row.mark.told()),
        **boxes(row.input, image_size),
        "source_box": row.source.box()._asdict(),
        "kept": row.input.kept,
        "source_kept": row.source.kept,
        "passes": row.input.passes._asdict(),
        "source_passes": row.source.passes._asdict(),
    }


def _save_maps(folder: Path, explanation: Explanation, *, raw: bool, stem: str = "") -> dict[str, str]:
    maps = {kind: values for kind, values in explanation.maps().items() if raw or kind != "raw"}
    for kind, values in maps.items():
        with whole(folder / f"{stem}{kind}.npy") as temporary, temporary.open("wb") as file:
            np.save(file, values.cpu().numpy())
    return {kind: f"{stem}{kind}.npy" for kind in maps}


def _save_pictures(
    folder: Path, explanation: Explanation, image: Tensor, *, stem: str = ""
) -> dict[str, str]:
    """The sheet's overlay, and the paper's pictures: Eq. (18), Eq. (19), Algorithm 1's M^b·X0."""
    pictures = explanation.pictures(image)
    for kind, drawn in pictures.items():
        save_picture(drawn, folder / f"{stem}{kind}.png")
    return {kind: f"{stem}{kind}.png" for kind in pictures}


def _facts(explanation: Explanation) -> dict[str, Any]:
    return dict(explanation.facts)


def _written(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    write_text(folder / RESULT, json.dumps(content, ensure_ascii=False, indent=1))
    return {"folder": str(folder), **content}
