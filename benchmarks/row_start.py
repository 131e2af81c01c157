"""Rows of parts: does the decoder do better from the part's own map than from a guess by gradients?

    python benchmarks/row_start.py --run RUN [--images 12] [--skip 0] [--rows 5] [--starts gradient part …]

RUN has `--regions parts` and was trained on the built-in birds. Its validation birds, one of each species,
and the rows that decide most are decoded from several starts: `gradient`, as any node; `part`, the part's
map a_k, both also with half of the steps; a_k raised to the power that the region is pooled by; the map of
*another* part, which shows how far the start decides; and a_k alone, without a decoder. The means over birds
are of the measures below, and the differences from `gradient` are paired. JSON on stdout.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from timing import say, tell
from torch import Tensor

from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.explaining.explainers import row_node
from dprotonet.experiment.model import Model
from dprotonet.experiment.quality.intervention.check import check_renderer, spread_over_classes
from dprotonet.experiment.quality.intervention.subject import Subject, changes_of, row_falls, subject_of
from dprotonet.interpretation.mdm import MDM, preset
from dprotonet.interpretation.ranked_masks import blurred
from dprotonet.metrics.comparison import mean_interval, paired_bootstrap
from dprotonet.metrics.distinctness import coverage, distinctness
from dprotonet.metrics.intervention import part_correlation, part_heat, top_part_right
from dprotonet.metrics.localization import top_share
from dprotonet.ops import upsample

FIRST = "gradient"
SHARES = (0.03, 0.1)  # of the image; a part has some three hundredths of it
EXCHANGES = 3  # as `dprotonet quality --intervention`

Maps = Callable[[Tensor], Tensor]


class Start(NamedTuple):
    """How a row is decoded: steps (none: the start is the map), and the start from the parts' maps."""

    steps: int
    made_of: Maps | None


STARTS = {
    FIRST: Start(16, None),
    f"{FIRST}, 8 steps": Start(8, None),
    "part": Start(16, lambda maps: maps),
    "part, 8 steps": Start(8, lambda maps: maps),
    "part to the 4th": Start(16, lambda maps: maps**4),
    "another part": Start(16, lambda maps: maps.roll(1, dims=1)),
    "part alone": Start(0, lambda maps: maps),
}


class Decoded(NamedTuple):
    """Heatmaps (R, H, W) of the rows of one bird, and what a row cost."""

    maps: Tensor
    forward: int
    backward: int
    seconds: float


def decoded(model: Model, subject: Subject, start: Start) -> Decoded:
    """The rows of one bird; seconds are the CPU's, for the machine may have other work."""
    images = model.inputs([subject.sample.image]).expand(len(subject.rows), -1, -1, -1)
    node = row_node(model.prototyped, subject.region[subject.rows])
    plain, made_of = node.maps, start.made_of
    assert plain is not None
    node.maps = None if made_of is None else lambda seen: made_of(plain(seen))
    begun = time.process_time()
    if not start.steps:
        with torch.no_grad():
            guess = node.guess(images, torch.arange(len(images)))
        assert guess is not None
        size = images.shape[-2], images.shape[-1]
        return Decoded(upsample(guess, size), 1, 0, (time.process_time() - begun) / len(images))
    found = MDM(preset=preset("fast", iterations=start.steps, own_guess=True)).explain(images, node)
    seconds = (time.process_time() - begun) / len(images)
    return Decoded(torch.stack([one.heatmap for one in found]), *found[0].passes, seconds)


def place_measures(maps: Tensor, subject: Subject) -> dict[str, float]:
    """Do rows show different places, and parts?"""
    apart, parts = distinctness(maps), coverage(maps, subject.parts)
    return {
        "overlap": apart.iou,
        "apart": apart.apart,
        "parts at peaks": parts.named,
        "parts covered": parts.covered,
    }


def truth_measures(maps: Tensor, subject: Subject, fall: Tensor) -> dict[str, float]:
    """Each row's heat on parts against the fall of its own score when they are exchanged, (R, K)."""
    heat = part_heat(maps, subject.parts.expand(len(maps), -1, -1, -1))
    kinds = {"sum": heat.total, "mean": heat.mean}
    found = {f"correlation ({name})": part_correlation(on, fall) for name, on in kinds.items()}
    found |= {f"top part ({name})": top_part_right(on, fall) for name, on in kinds.items()}
    return {name: float(values.nanmean()) for name, values in found.items()}


@torch.no_grad()
def score_measures(model: Model, maps: Tensor, subject: Subject) -> dict[str, float]:
    """What is left of the rows' scores without the hottest of the image, and with them alone."""
    image = model.inputs([subject.sample.image])
    blank, before = blurred(image), subject.scores[subject.rows].sum()
    values = {}
    for share in SHARES:
        hot = top_share(maps, share).unsqueeze(1)
        for word, shown in (("without", ~hot), ("with only", hot)):
            scores = model.prototyped.evidence(torch.where(shown, image, blank)).scores
            left = scores.double().gather(1, subject.rows.unsqueeze(1)).sum()
            values[f"score {word} the hottest {share:.0%}"] = float(left / before)
    return values


def measured(model: Model, data: Any, index: int, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Every measure of one bird by start."""
    subject = subject_of(model, data, index, rows=options.rows)
    changes = changes_of(model, check_renderer(data), subject, exchanges=EXCHANGES, seed=0)
    fall = row_falls(model, subject, changes.exchange)
    found = {}
    for name in options.starts:
        maps, forward, backward, seconds = decoded(model, subject, STARTS[name])
        found[name] = {
            **place_measures(maps, subject),
            **truth_measures(maps, subject, fall),
            **score_measures(model, maps, subject),
            **{"forward": forward, "backward": backward, "seconds": seconds},
        }
    return found


def summary(birds: list[dict[str, dict[str, float]]]) -> dict[str, Mapping[str, Any]]:
    """Means with intervals, and paired differences from the gradient's start."""
    means: dict[str, dict[str, Any]] = defaultdict(dict)
    differences: dict[str, dict[str, Any]] = defaultdict(dict)
    for name in birds[0]:
        for measure in birds[0][name]:
            ours, first = (
                torch.tensor([bird[start][measure] for bird in birds], dtype=torch.double)
                for start in (name, FIRST)
            )
            means[name][measure] = mean_interval(ours)._asdict()
            if name != FIRST:
                differences[name][measure] = paired_bootstrap(ours, first)._asdict()
    ratios = {name: _ratio(means, name) for name in birds[0]}
    return {"means": means, f"differences from {FIRST}": differences, "time ratio": ratios}


def _ratio(means: Mapping[str, Mapping[str, Any]], name: str) -> float:
    return float(means[name]["seconds"]["mean"] / means[FIRST]["seconds"]["mean"])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", required=True)
    parser.add_argument("--images", type=int, default=12)
    parser.add_argument("--skip", type=int, default=0, help="so many birds before them")
    parser.add_argument("--rows", type=int, default=5)
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=list(STARTS), metavar="START")
    options = parser.parse_args()
    if FIRST not in options.starts:
        parser.error(f"{FIRST} is what the others are compared with; name it too")
    return options


def main() -> None:
    options = arguments()
    model = Model.load(options.run)
    data = build_splits(model.config.data).val
    assert data is not None, "the run held back no validation images"
    birds = []
    for index in spread_over_classes(data.labels, options.skip + options.images)[options.skip :]:
        birds.append(measured(model, data, index, options))
        say(f"bird {len(birds)} of {options.images}")
    settings = {key: value for key, value in vars(options).items() if key != "run"}
    settings |= {"split": "val", "exchanges": EXCHANGES}
    tell({"benchmark": "row_start", "settings": settings, **summary(birds)})


if __name__ == "__main__":
    main()
