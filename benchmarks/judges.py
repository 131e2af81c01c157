"""Which explainer is best depends on who judges: all explainers before all judges, and how judges agree.

    python benchmarks/judges.py timm:tf_efficientnet_lite0:packaged images:FOLDER imagenet.json --kept a
    python benchmarks/judges.py runs/demo birds birds.json --kept b

Images of an odd number, evenly spread: `--images` of them for what is quick, `--few` of these for all. What
was measured lies in `--kept`, so a stopped measurement goes on; `--write` makes the JSON of what is there.
docs/judge_tables.py draws its tables: ranks, agreement of judges, means.
"""

import argparse
import json
import logging
import sys
from pathlib import Path

import torch
from subjects import part_of, spread

from dprotonet.config import DataConfig
from dprotonet.data.base import ImageData
from dprotonet.data.folder import loose_images
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.compare.method import CONTROLS, method
from dprotonet.experiment.compare.run import Comparison, Results
from dprotonet.experiment.compare.table import Table
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.interpretation.explainers import EXPLAINERS
from dprotonet.metrics.faithfulness import RiseProtocol
from dprotonet.metrics.judges import FAMILIES
from dprotonet.metrics.measures import Protocol

QUICK = ("mdm", "mdm:instant", *(name for name, entry in EXPLAINERS.items() if not entry.slow))
LEFT_OUT = (
    *("scorecam", "ablationcam"),  # a pass for each of 1,280 channels
    *("hirescam", "xgradcam"),  # Grad-CAM's map to the digit where an average and a linear layer follow
)
STEPS = 7  # of every deletion and insertion


def data_of(network: str, name: str, classifier: Classifier) -> ImageData:
    if name.startswith("images:"):
        return loose_images(Path(name.removeprefix("images:")), size=classifier.size)
    stored = DataConfig() if network.startswith("timm:") else RunFolder(Path(network)).read_config().data
    splits = build_splits(stored)
    assert splits.test is not None
    return splits.test


def comparison(arguments: argparse.Namespace, *, few: bool) -> Comparison:
    classifier = Classifier.open(arguments.network)
    data = data_of(arguments.network, arguments.data, classifier)
    own = () if arguments.network.startswith("timm:") else ("similarity",)
    names = [name for name in QUICK if name in own or not {"prototypes", "attention"} & set(_needs(name))]
    names += [name for name, entry in EXPLAINERS.items() if few and entry.slow]
    names = [name for name in names if name not in LEFT_OUT]
    protocol = Protocol(RiseProtocol(steps=STEPS), judges=tuple(FAMILIES))
    chosen = spread(part_of(len(data), "held"), arguments.images)
    chosen = spread(chosen, arguments.few) if few else chosen
    methods = [method(name, classifier) for name in dict.fromkeys([*names, *CONTROLS])]
    return Comparison(classifier, data, methods, arguments.kept, protocol=protocol, chosen=tuple(chosen))


def _needs(name: str) -> tuple[str, ...]:
    entry = EXPLAINERS.get(name)
    return () if entry is None else entry.needs


def written(arguments: argparse.Namespace, quick: Comparison, all_of_them: Comparison) -> None:
    """Tables of the images that every method has been measured on."""
    content = {
        "command": f"python benchmarks/judges.py {arguments.network.rpartition('/')[2]} "
        f"{arguments.data.partition(':')[0]} {arguments.json.name}",
        "torch": torch.__version__,
        "images of": "odd numbers, evenly spread",
        "quick": summary(quick),
        "all": summary(all_of_them),
    }
    text = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)
    arguments.json.write_text(text + "\n", encoding="utf-8")


def summary(asked: Comparison) -> dict[str, object]:
    found = asked.results()
    every = set.intersection(*(set(kept) for kept in found.records.values()))
    records = {
        name: {place: record for place, record in kept.items() if place in every}
        for name, kept in found.records.items()
    }
    common = Results(records, (), found.samples, found.without_truth)
    table = Table.of(common, asked.protocol, network=asked.classifier.name, methods=asked.methods)
    return {**table.summary(), "higher is better": {m.name: m.higher for m in table.measures}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("data")
    parser.add_argument("json", type=Path)
    parser.add_argument("--images", type=int, default=12)
    parser.add_argument("--few", type=int, default=3)
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    quick, every = comparison(arguments, few=False), comparison(arguments, few=True)
    for asked in () if arguments.write else (quick, every):
        for step in asked.run():
            if step.failure is not None:
                sys.exit(f"{step.failure.method} on {step.failure.image}: {step.failure.reason}")
            print(f"{step.done}/{step.total} {step.what}", file=sys.stderr, flush=True)
    written(arguments, quick, every)


if __name__ == "__main__":
    main()
