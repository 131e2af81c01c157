"""What is kept of an exported model's explanations: a sheet, the maps, and explanation.json."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dprotonet.experiment.explaining.explanation_files import RESULT, boxes
from dprotonet.experiment.explaining.pictures import save_picture
from dprotonet.experiment.transfer.export.onnx_model import OnnxExplained
from dprotonet.files import write_text


def save_onnx_explained(explained: OnnxExplained, folder: Path, *, title: str = "") -> dict[str, Any]:
    """A sheet for people, and maps and pictures of the class and of every row; what explanation.json says."""
    save_picture(explained.picture(title), folder / "sheet.png")
    explained.whole_class.save(folder, image=explained.image, stem="class")
    rows = []
    for place, (item, found) in enumerate(explained.rows, start=1):
        stem = f"{place}-prototype-{item.prototype:04d}"
        found.save(folder, image=explained.image, stem=stem)
        told = {**asdict(item), "ahead": item.ahead, **boxes(found, explained.image_size)}
        rows.append({**told, "kept": found.kept, "files": stem})
    shown = sum(item.contribution for item, _ in explained.rows)
    content = {
        **{key: value for key, value in asdict(explained.prediction).items() if key != "evidence"},
        "rows": rows,
        "rest": explained.prediction.logit - shown if rows else 0.0,
        **boxes(explained.whole_class, explained.image_size),
        "size": list(explained.image.shape[-2:]),
        "image_size": list(explained.image_size),
        **explained.whole_class.facts,
        "sheet": "sheet.png",
    }
    write_text(folder / RESULT, json.dumps(content, ensure_ascii=False, indent=1))
    return {"folder": str(folder), **content}
