"""What ImageNet would take: constants measured in growth.json, and assumed ones of machines we do not have.

    python benchmarks/scale_model.py --out docs/results/scale-model.json

Nothing is run. Bytes follow from shapes; memory that was measured grows from the size it was measured at as
written beside it. **Seconds are of an assumed GPU** (`assumed`): no GPU was measured, they say what
dominates and no more.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from timing import tell

IMAGES, VALIDATION, CLASSES, PROTOTYPES, AUGMENTATIONS = 1_281_167, 50_000, 1000, 10_000, 4
MAPS = {  # of a view, EfficientNet-Lite0 at 224 pixels
    "masks, all channels": (1280, 7, 7),
    "masks, --feature-channels 256": (256, 7, 7),
    "masks, --feature-channels 128": (128, 7, 7),
    "parts, two levels": (256, 14, 14),
}
BESIDE = 2944  # numbers of a view beside its map: averages and deviations of the channels of all levels
CLASSES_OF_A_BATCH = 2  # in a push, which goes over a folder in its order: only their prototypes matter
ANSWER = 1150  # bytes of a prototype in /api/prototypes: benchmarks/scale.py --images 2000 --classes 20
MASKS, DIMENSION, EPOCHS, LAST_LAYER = 720, 512, 30, 20
ASSUMED = {
    "images a second, backbone forward, one GPU": 2000,
    "sustained TFLOP/s of everything else, one GPU": 10,
    "images decoded and augmented a second and core": 100,
    "cores for each GPU": 8,
    "gigabytes read from the cache a second, one machine": 2,
    "share of eight GPUs that is put to use": 0.85,
}


def sizes(growth: dict[str, Any]) -> dict[str, Any]:
    """Gigabytes on disk and in memory, as it was and as it is."""
    views, scores = IMAGES * (1 + AUGMENTATIONS), IMAGES * PROTOTYPES * 4
    parts = growth["parts"]

    def grown(name: str, size: int) -> float:
        """Gigabytes in proportion to a size, from the larger measurement."""
        measured, megabytes = list(parts[name]["megabytes"].items())[-1]
        return round(megabytes * size / int(measured) / 1000, 2)

    return {
        "cache, gigabytes": {
            name: {
                "with 4 augmentations": round(views * 2 * (channels * height * width + BESIDE) / 1e9, 1),
                "without": round(IMAGES * 2 * (channels * height * width + BESIDE) / 1e9, 1),
            }
            for name, (channels, height, width) in MAPS.items()
        },
        "gigabytes": {
            "what-if, memory before": round(2 * scores / 1e9, 1),
            "what-if, disk now": round(scores / 1e9, 1),
            "nearest images of the comparison, memory before": round(2 * scores / 1e9, 1),
            "last layer, memory before": round((scores + VALIDATION * PROTOTYPES * 4) / 1e9, 1),
            "last layer, disk now": round((scores + VALIDATION * PROTOTYPES * 4) / 1e9, 1),
            "scores, memory now": round(parts["scores"]["megabytes"]["50000"] / 1000, 2),
            "keys of an epoch before": grown("keys as tuples", IMAGES),
            "keys of an epoch now": grown("keys", IMAGES),
            "list of files": grown("files", IMAGES),
            "pairs of prototypes before": round(PROTOTYPES**2 * 8 / 1e9, 1),
            "pairs of prototypes now": grown("collapsed", PROTOTYPES),
            "facts of prototypes": grown("facts", PROTOTYPES),
            "head, its gradient and Adam": round(4 * CLASSES * PROTOTYPES * 4 / 1e9, 2),
            "answer to /api/prototypes before": round(ANSWER * PROTOTYPES / 1e9, 3),
        },
    }


def seconds() -> dict[str, Any]:
    """Of an assumed GPU, and of eight in one machine."""
    looked = ASSUMED["images a second, backbone forward, one GPU"]
    read = ASSUMED["images decoded and augmented a second and core"] * ASSUMED["cores for each GPU"]
    places = MAPS["masks, all channels"][1] * MAPS["masks, all channels"][2]
    shaping = 2 * places * (1280 * DIMENSION + DIMENSION**2)
    masks, nearest = 2 * MASKS * places * DIMENSION, 2 * MASKS * DIMENSION * PROTOTYPES
    head = 2 * CLASSES * PROTOTYPES
    step = 3 * (shaping + masks + head) + nearest  # the search has no backward pass
    rate = ASSUMED["sustained TFLOP/s of everything else, one GPU"] * 1e12
    from_disk = (
        IMAGES * 2 * 1280 * places / 1e9 / ASSUMED["gigabytes read from the cache a second, one machine"]
    )
    hours = {
        "features, 4 augmentations": IMAGES * (1 + AUGMENTATIONS) / min(looked, read) / 3600,
        "an epoch on them": IMAGES * step / rate / 3600,
        "a push": IMAGES * (shaping + masks + nearest * CLASSES_OF_A_BATCH / CLASSES) / rate / 3600,
        "scores for the last layer": IMAGES * (shaping + masks + nearest) / rate / 3600,
        "20 epochs of the last layer": LAST_LAYER * IMAGES * 3 * head / rate / 3600,
    }
    hours["30 epochs, 3 pushes, each with a last layer"] = EPOCHS * hours["an epoch on them"] + 3 * (
        hours["a push"] + hours["scores for the last layer"] + hours["20 epochs of the last layer"]
    )
    share = 8 * ASSUMED["share of eight GPUs that is put to use"]
    return {
        "operations of a step, GFLOP an image": round(step / 1e9, 1),
        "of them in the search for the nearest region, %": round(100 * nearest / step),
        "hours": {
            name: {"one GPU": round(value, 2), "eight": round(value / share, 2)}
            for name, value in hours.items()
        },
        "hours of reading the cache, an epoch": round(from_disk / 3600, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--growth", type=Path, default=Path("docs/results/growth.json"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = {
        "images": IMAGES,
        "prototypes": PROTOTYPES,
        **sizes(json.loads(options.growth.read_text())),
        "assumed": ASSUMED,
        "modelled": seconds(),
    }
    tell(found)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
