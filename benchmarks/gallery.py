"""The pictures of docs/gallery.md: every explainer on the same six birds, and every way a map can mislead.

    python benchmarks/gallery.py --out runs/gallery

Trains a small run on the built-in birds where --out has none, explains the first test image of each of its
first six species by every line of the table, and draws the failures of `FAILURES`. Maps of explainers are
kept in --out, so that an interrupted call goes on, and one of so many --minutes is completed by another.
Pictures go to docs/images, their numbers to docs/results/gallery.json. Nothing is chosen by how it looks:
images, classes and layers are the first ones.
"""

import argparse
import json
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gallery_failures import FAILURES, Panel, Subject
from PIL import Image

import dprotonet as dp
from dprotonet.errors import ComputationError, UserError
from dprotonet.experiment.explaining.explainers import explainer
from dprotonet.figures import overlay
from dprotonet.figures.canvas import Canvas
from dprotonet.figures.style import GAP, MARGIN, MUTED, SMALL, TITLE, font, wrapped
from dprotonet.files import write_text
from dprotonet.interpretation.explainers import EXPLAINERS
from dprotonet.metrics.localization import energy_share

ROOT = Path(__file__).resolve().parents[1]
BIRDS = 6
DATA = {"species": 8, "train_per_species": 30, "val_per_species": 5, "test_per_species": 5}
TILE, NAME, PANEL = 120, 190, 208
COLOURS = 255  # of the palette that pictures are saved with
logger = logging.getLogger("gallery")


def main() -> None:
    options = arguments()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    subject = opened(options.out)
    facts: dict[str, Any] = {"command": "python benchmarks/gallery.py", "data": DATA}
    facts["test accuracy"] = accuracy(subject)
    facts["failures"] = {}
    for name, (title, make) in FAILURES.items():
        panels = make(subject)
        save(strip(title, panels), options.images / f"gallery-{name}.png")
        facts["failures"][name] = {panel.name: panel.caption for panel in panels if panel.caption}
        logger.info("%s: %s", name, facts["failures"][name])
    maps, facts["explainers"] = explained(subject, options)
    save(grid(subject, maps), options.images / "gallery-explainers.png")
    write_text(options.results, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/gallery"))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no slow explainer after")
    parser.add_argument("--images", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results" / "gallery.json")
    return parser.parse_args()


def opened(out: Path) -> Subject:
    run = out / "run"
    if not (run / "prototypes.json").exists():
        config = dp.Config(
            data=dp.DataConfig(**DATA), training=dp.TrainingConfig(mode="frozen", augmentations=1)
        )
        dp.train(config, run, overwrite=True, progress=False)
    test = dp.Birds(species=DATA["species"], per_species=DATA["test_per_species"], split="test")
    first = [list(test.labels).index(label) for label in range(BIRDS)]
    return Subject.of(dp.classifier(run), [test[index] for index in first])


@torch.no_grad()
def accuracy(subject: Subject) -> float:
    test = dp.Birds(species=DATA["species"], per_species=DATA["test_per_species"], split="test")
    found = subject.module(subject.classifier.inputs([test[index].image for index in range(len(test))]))
    return float((found.argmax(dim=1) == torch.tensor(test.labels)).float().mean())


def explained(
    subject: Subject, options: argparse.Namespace
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Heatmaps (6, H, W) of the predicted class by every explainer that this network has, slow ones last."""
    maps: dict[str, torch.Tensor] = {}
    facts: dict[str, Any] = {}
    begun = time.monotonic()
    for name, entry in sorted(EXPLAINERS.items(), key=lambda item: item[1].slow * passes(item[1].cost)):
        path = options.out / "maps" / f"{name}.npy"
        if entry.slow and not path.exists() and time.monotonic() - begun > 60 * options.minutes:
            facts[name] = {"label": entry.label, "left out": "slow; run the command again for it"}
            continue
        try:
            if not path.exists():
                start = time.process_time()
                found = explainer(name, subject.classifier)(subject.inputs)
                path.parent.mkdir(parents=True, exist_ok=True)
                np.save(path, found)
                logger.info("%s: %.0f s of CPU time", name, time.process_time() - start)
            maps[name] = torch.from_numpy(np.load(path))
            on_bird = float(energy_share(maps[name], subject.truth).nanmean())
            facts[name] = {"label": entry.label, "heat on the bird": round(on_bird, 3)}
        except (UserError, ComputationError) as error:
            facts[name] = {"label": entry.label, "left out": str(error)}
            logger.info("%s left out: %s", name, error)
    return maps, facts


def passes(cost: str) -> int:
    """Of "170 passes" the number; a pass for every channel is dearer than any of them."""
    number = cost.split()[0]
    return int(number) if number.isdigit() else 10_000


# ── drawing ──


def grid(subject: Subject, maps: dict[str, torch.Tensor]) -> Image.Image:
    """A row for each explainer, a column for each bird."""
    canvas = Canvas(
        2 * MARGIN + NAME + BIRDS * (TILE + GAP) - GAP, 2 * MARGIN + (len(maps) + 1) * (TILE + GAP) - GAP
    )
    rows = [("the image", None), *((EXPLAINERS[name].label, heat) for name, heat in maps.items())]
    for place, (label, heat) in enumerate(rows):
        top = MARGIN + place * (TILE + GAP)
        for number, line in enumerate(wrapped(label, NAME - 12, font(SMALL, bold=True), lines=3)):
            canvas.text((MARGIN, top + 24 + 20 * number), line, size=SMALL, bold=True)
        for column, image in enumerate(subject.shown):
            shown = image if heat is None else overlay(image, heat[column].clamp(0, 1))
            canvas.picture((MARGIN + NAME + column * (TILE + GAP), top), shown, TILE)
    return canvas.image


def strip(title: str, panels: list[Panel]) -> Image.Image:
    """Pictures side by side, each with its name and what was measured of it."""
    step = PANEL + GAP
    canvas = Canvas(2 * MARGIN + len(panels) * step - GAP, 2 * MARGIN + 50 + PANEL + 96)
    canvas.text((MARGIN, MARGIN + 16), title, size=TITLE, bold=True, width=len(panels) * step)
    for place, panel in enumerate(panels):
        left, top = MARGIN + place * step, MARGIN + 50
        drawn = panel.image if panel.heat is None else overlay(panel.image, panel.heat.clamp(0, 1))
        canvas.picture((left, top), drawn, PANEL)
        canvas.text((left, top + PANEL + 26), panel.name, size=SMALL, bold=True, width=PANEL)
        for number, line in enumerate(wrapped(panel.caption, PANEL, font(SMALL), lines=3)):
            canvas.text((left, top + PANEL + 50 + 20 * number), line, size=SMALL, colour=MUTED)
    return canvas.image


def save(picture: Image.Image, path: Path) -> None:
    picture.quantize(COLOURS).save(path, optimize=True)


if __name__ == "__main__":
    main()
