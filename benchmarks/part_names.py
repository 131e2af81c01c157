"""How often is a row about the part that it is named after? One name per prototype, or per part.

    python benchmarks/part_names.py --run runs/demo > docs/results/parts-names-right.json

The run must have parts, and its data masks or keypoints of parts. Names come from training images. They are
judged on the five strongest rows of the predicted class of validation images: `named` is the share of rows
with a name, `right` the share of these with that part under their place. Test images are never opened.
"""

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.model import Model
from dprotonet.experiment.prototypes.parts import alike, nearest_places, part_under

ROWS = 5
SHARES = (1 / 2, 3 / 5, 2 / 3, 3 / 4, 9 / 10)
Votes = Sequence[Counter[str]]


def names(votes: Votes, groups: Sequence[Sequence[int]], images: int, least: float) -> dict[int, str]:
    """The most frequent part of each group, where at least that share of its images has it."""
    found = {}
    for number, group in enumerate(groups):
        voted = sum((votes[one] for one in group), Counter[str]())
        usual, times = voted.most_common(1)[0] if voted else ("", 0)
        if times and times >= least * images * len(group):
            found[number] = usual
    return found


def judged(called: Mapping[int, str], rows: Sequence[tuple[int, str | None]]) -> dict[str, float]:
    known = [(called[number], part) for number, part in rows if number in called]
    right = sum(name == part for name, part in known) / max(len(known), 1)
    return {"named": round(len(known) / len(rows), 4), "right": round(right, 4)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--images", type=int, default=20, help="training images per prototype")
    options = parser.parse_args()
    model = Model.load(options.run)
    splits = build_splits(model.config.data)
    votes: list[Counter[str]] = []
    for found in nearest_places(model, splits.train, images=options.images):
        parts = (part_under(splits.train[one.index], one.place) for one in found)
        votes.append(Counter(part for part in parts if part is not None))
    rows = []
    for index in range(len(splits.val)):
        sample = splits.val[index]
        prediction = model.predict(sample.image)
        own = [item for item in prediction.evidence if item.class_name == prediction.class_name]
        places = [(item.prototype, item.place) for item in own[:ROWS]]
        rows += [(number, part_under(sample, place)) for number, place in places if place is not None]
    own_groups = [[number] for number in range(len(votes))]
    shared = [alike(model, number) for number in range(len(votes))]
    tables = {"each prototype": own_groups, "all of a part": shared}
    results = [
        {"voters": words, "least": round(least, 4)}
        | judged(names(votes, groups, options.images, least), rows)
        for words, groups in tables.items()
        for least in SHARES
    ]
    print(json.dumps({"benchmark": "part_names", "rows": len(rows), "results": results}, indent=1))


if __name__ == "__main__":
    main()
