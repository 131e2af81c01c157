"""A table of predictions from image files against the bare network: images per second, as a ratio.

Both see the same images in batches of the same size, in turns. The bare network gets them decoded and
normalised; the table is `dprotonet predict --out FILE.csv` without loading the model: reading files,
decoding, network, rows on disk. The goal is a ratio of 0.8. `--clock cpu` counts CPU seconds of all threads,
where others use the machine: reading then counts in full, though a second core would hide it.
"""

import argparse
import os
import tempfile
from pathlib import Path

import torch
from networks import CLOCKS
from PIL import Image
from timing import alternating_seconds, middle, tell

from dprotonet.data.birds import Birds
from dprotonet.experiment.trained.answered_files import batches_of
from dprotonet.experiment.trained.predict_files import TableSettings, predict_files
from dprotonet.experiment.trained.trained_model import TrainedModel

TARGET = 0.8


def photographs(folder: Path, count: int, edge: int) -> list[Path]:
    """JPEGs as a camera gives them: larger than the network wants."""
    birds = Birds(species=4, per_species=count // 4 + 1, split="test", size=edge)
    paths = [folder / f"{number:04d}.jpg" for number in range(count)]
    for number, path in enumerate(paths):
        Image.fromarray(birds[number].image.permute(1, 2, 0).numpy()).save(path, quality=90)
    return paths


def measured(model: TrainedModel, paths: list[Path], options: argparse.Namespace) -> dict[str, object]:
    inputs = [model.inputs(batch) for batch in batches_of(paths, options.batch_size)]
    settings = TableSettings(options.batch_size)

    @torch.no_grad()
    def bare() -> None:
        for batch in inputs:
            model.network(batch)

    def table() -> None:
        with tempfile.TemporaryDirectory() as folder:
            predict_files(model, paths, Path(folder) / "answers.csv", settings=settings)

    clock = CLOCKS[options.clock]
    seconds = alternating_seconds({"bare": bare, "table": table}, repeats=options.repeats, clock=clock)
    fastest = {name: min(values) for name, values in seconds.items()}
    return {
        "images": len(paths),
        "edge": options.edge,
        "batch_size": options.batch_size,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "clock": options.clock,
        "pixels": model.config.data.image_size,
        "images_per_second": {
            name: round(len(paths) / middle(values), 1) for name, values in seconds.items()
        },
        "ratio": round(middle(seconds["bare"]) / middle(seconds["table"]), 3),
        "ratio_of_the_fastest": round(fastest["bare"] / fastest["table"], 3),
        "target": TARGET,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="a run folder")
    parser.add_argument("--images", type=int, default=192)
    parser.add_argument("--edge", type=int, default=640)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    model = TrainedModel.load(options.run)
    with tempfile.TemporaryDirectory() as folder:
        tell(measured(model, photographs(Path(folder), options.images, options.edge), options))


if __name__ == "__main__":
    main()
