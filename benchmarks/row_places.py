"""Are rows with a warning wrong, and rows with a poor mark worse? Test images of runs, against the truth.

    python benchmarks/row_places.py --images 120 birds=runs/demo chest=runs/chest --out row-places.json

The limit is that of each run's validation images (measured if need be); the test images decide nothing. Of
the three rows that `explain` shows:

* *swapped*: the training image's place is replaced by that of another part, a pair known to be wrong;
* *different part*: the masks of parts round the two places (a box of 17 pixels) have none in common, where
  the data knows parts;
* *off the object*, and what five other changes do (JPEG 25, blur, darker, more contrast, a shift of 5
  pixels): whether the place moves by more than 32/224 in any, by the mark.

Beside the warning stand two baselines at limits made alike: the distance of the two places as shares of the
image, and no knowledge at all, which is right as often as rows are wrong.
"""

import argparse
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter
from torch import Tensor

from dprotonet.data.base import ImageData, Sample
from dprotonet.experiment.explaining import row_marks as marks
from dprotonet.experiment.model import Model
from dprotonet.experiment.runs.row_places import PlaceLimit
from dprotonet.metrics.classification import auroc
from dprotonet.metrics.row_places import kept_share, place_rank

TOP, REACH = 3, 8  # rows of an image; pixels round a place


def parts_near(sample: Sample, point: Tensor) -> set[str]:
    """Names of the parts that have pixels in the box round a point, x and y as shares."""
    height, width = sample.image.shape[-2:]
    x, y = int(point[0] * width), int(point[1] * height)
    rows, columns = (slice(max(0, at - REACH), at + REACH + 1) for at in (y, x))
    return {name for name, mask in sample.parts.items() if bool(mask[rows, columns].any())}


def on_object(sample: Sample, point: Tensor) -> bool | None:
    if sample.truth is None or not bool(sample.truth.any()):
        return None
    height, width = sample.truth.shape
    return bool(sample.truth[min(int(point[1] * height), height - 1), min(int(point[0] * width), width - 1)])


def changed(image: Tensor) -> list[Tensor]:
    """Five changes that are no noise."""
    drawn, stream = Image.fromarray(image.permute(1, 2, 0).numpy()), io.BytesIO()
    drawn.save(stream, "JPEG", quality=25)
    pictures = [
        Image.open(stream).convert("RGB"),
        drawn.filter(ImageFilter.GaussianBlur(1.5)),
        ImageEnhance.Brightness(drawn).enhance(0.8),
        ImageEnhance.Contrast(drawn).enhance(1.25),
    ]
    tensors = [torch.from_numpy(np.array(one)).permute(2, 0, 1).contiguous() for one in pictures]
    return [*tensors, torch.roll(image, (5, 5), (1, 2))]


def rows_of(model: Model, data: ImageData, train: ImageData, indices: Sequence[int]) -> list[dict[str, Any]]:
    """Everything that is asked of every row."""
    sources, originals, found = marks._Sources(model), dict[int, Sample](), []
    for index in indices:
        sample = data[index]
        (answer,) = model.answers([sample.image])
        items = answer.evidence(answer.label())[:TOP]
        numbers = [item.prototype for item in items]
        inputs = model.inputs([sample.image])
        features, points = marks._features(model, inputs)[0], marks._points(model, inputs, numbers)[0]
        kept = kept_share(points, marks._points(model, marks._noisy(inputs), numbers)).tolist()
        shaken = marks._points(model, model.inputs(changed(sample.image)), numbers)
        other = kept_share(points, shaken).tolist()
        for number, point, stays, after in zip(numbers, points, kept, other, strict=True):
            index = model.prototypes[number].index
            if index not in originals:
                originals[index] = train[index]
            origin = originals[index]
            source = sources[number]
            image = model.inputs([origin.image])
            wrong = marks._points(model, image, [_of_another_part(model, number)])[0][0]
            near, there = parts_near(sample, point), parts_near(origin, source.points[0])
            found.append(
                {
                    "rank": place_rank(features, source.features, torch.stack([point, source.points[0]])),
                    "swapped": place_rank(features, source.features, torch.stack([point, wrong])),
                    "distance": float((point - source.points[0]).norm()),
                    "swapped distance": float((point - wrong).norm()),
                    "different": None if not near and not there else not near & there,
                    "on object": on_object(sample, point),
                    "mark": marks.RowMark(stays, 0.0).word,
                    "kept": stays,
                    "moved by others": after < 1,
                    "right": answer.label() == sample.label,
                }
            )
    return found


def _of_another_part(model: Model, number: int) -> int:
    """The next prototype of the same class, which is another part."""
    mine = [r.prototype for r in model.prototypes if r.class_name == model.prototypes[number].class_name]
    return mine[(mine.index(number) + 1) % len(mine)]


def share(flags: Sequence[bool]) -> float | None:
    return round(sum(flags) / len(flags), 3) if flags else None


def judged(rows: Sequence[dict[str, Any]], limit: float, far: float) -> dict[str, Any]:
    """Both warnings, by the truth that there is, and the marks."""
    table: dict[str, Any] = {"rows": len(rows), "limit": limit, "limit of distance": round(far, 4)}
    for name, key, most in (("places", "rank", limit), ("distance", "distance", far)):
        swapped = "swapped" if key == "rank" else "swapped distance"
        values = torch.tensor([row[key] for row in rows] + [row[swapped] for row in rows])
        planted = torch.arange(len(values)) >= len(rows)
        said: dict[str, Any] = {
            "warned": share([row[key] > most for row in rows]),
            "swapped warned": share([row[swapped] > most for row in rows]),
            "swapped auroc": round(auroc(values, planted), 3),
        }
        known = [row for row in rows if row["different"] is not None]
        if known:
            warned = [row for row in known if row[key] > most]
            wrong = [row for row in known if row["different"]]
            said["precision"] = share([row["different"] for row in warned])
            said["recall"] = share([row[key] > most for row in wrong])
            said["warned known"] = len(warned)
        table[name] = said
    table["different part"] = share([row["different"] for row in rows if row["different"] is not None])
    table["marks"] = {word: _of_mark([row for row in rows if row["mark"] == word]) for word in marks.WORDS}
    kept = torch.tensor([1 - row["kept"] for row in rows])
    table["moved by others, auroc"] = round(
        auroc(kept, torch.tensor([r["moved by others"] for r in rows])), 3
    )
    return table


def _of_mark(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    known = [row["on object"] for row in rows if row["on object"] is not None]
    return {
        "rows": len(rows),
        "off the object": share([not flag for flag in known]),
        "different part": share([row["different"] for row in rows if row["different"] is not None]),
        "moved by others": share([row["moved by others"] for row in rows]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", help="NAME=RUN")
    parser.add_argument("--images", type=int, default=120)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    table = json.loads(asked.out.read_text()) if asked.out.is_file() else {}
    for name, run in (word.split("=", 1) for word in asked.runs):
        model = Model.load(run)
        splits = model.splits()
        limit = PlaceLimit.read(Path(run), model.network)
        limit = limit or marks.measured_limit(model, splits.val, top=TOP)
        every = max(1, len(splits.val) // asked.images)
        known = rows_of(model, splits.val, splits.train, range(0, len(splits.val), every))
        far = torch.tensor([row["distance"] for row in known if row["right"]]).quantile(0.95).item()
        every = max(1, len(splits.test) // asked.images)
        rows = rows_of(model, splits.test, splits.train, range(0, len(splits.test), every)[: asked.images])
        table[name] = judged(rows, limit.limit, far)
        asked.out.write_text(json.dumps(table, indent=1))
        print(name, json.dumps(table[name]), flush=True)


if __name__ == "__main__":
    main()
