"""The seconds that were promised, on this machine as it is now: demo, report, serve, predict; JSON on stdout.

    python benchmarks/goals.py [--only demo report serve predict] [--run RUN] [--out FILE.json]

Seconds of a clock on the wall, so the machine should have nothing else to do; CPU seconds of all processes
and threads stand beside them. The demo begins with an empty feature cache, and its run is what the others
look at (with --run another one). The report is made twice: once with no heatmap and no fact about prototypes
kept, and once more. `serve` is ready when its page has been answered. `predict` makes a table of small JPEGs,
without what it takes for one image to be answered, beside the bare network on the same images, decoded and
normalised, before and after it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from bench import machine
from predict_many import BARE, BATCH, command, not_broken, photographs, table
from starting import until_served
from timing import say, tell

from dprotonet.experiment.trained.answered_files import batches_of
from dprotonet.experiment.trained.trained_model import TrainedModel

SECONDS = {"demo": 180.0, "report": 30.0, "report again": 30.0, "serve": 4.0}
SPEED, SHARE = 100.0, 0.8  # images a second, or so much of the bare network's
TURNS = 3


def timed(what: str, step: Callable[[], object]) -> dict[str, Any]:
    """Seconds, and those of all processes that it started."""
    before, begun = os.times(), time.perf_counter()
    step()
    seconds, after = time.perf_counter() - begun, os.times()
    say(f"{what}: {seconds:.1f} s")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    found = {"seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2)}
    goal = SECONDS.get(what)
    return found if goal is None else {**found, "goal": goal, "reached": seconds <= goal}


def run(words: list[str]) -> None:
    run_plain([sys.executable, "-m", "dprotonet", *words])


def demo(folder: Path) -> dict[str, Any]:
    return timed("demo", lambda: run(["demo", "--out", str(folder / "demo"), "--json"]))


def report(given: Path, folder: Path) -> dict[str, Any]:
    """Of a copy of the run, in which nothing that a report makes is kept at first."""
    copy = folder / "copy"
    made_by_reports = shutil.ignore_patterns("explanations", "prototype_facts.json", "report.html")
    shutil.copytree(given, copy, ignore=made_by_reports)
    words = ["report", str(copy), "--json"]
    return {what: timed(what, lambda: run(words)) for what in ("report", "report again")}


def serve(given: Path) -> dict[str, Any]:
    """The fastest of some: the first may read its packages from the disk."""
    found = [timed("serve", lambda: until_served(str(given))) for _ in range(TURNS)]
    return min(found, key=lambda one: float(one["seconds"]))


@torch.no_grad()
def bare_speed(given: Path, images: Path) -> float:
    """Images a second of the network on decoded images, with as many threads as torch takes."""
    model = TrainedModel.load(given)
    whole = not_broken(images)
    inputs = [model.inputs(paths) for paths in batches_of(whole[: BARE * BATCH], BATCH)]
    model.network(inputs[0])  # the first is slower
    begun = time.perf_counter()
    for batch in inputs:
        model.network(batch)
    return sum(map(len, inputs)) / (time.perf_counter() - begun)


def predict(given: Path, folder: Path, count: int) -> dict[str, Any]:
    options, images = Namespace(run=given, images=count, edge=128), folder / "images"
    broken = photographs(images, options)
    one = timed("predict, one image", lambda: run_plain(command(options, next(images.rglob("*.jpg")))))
    before = bare_speed(given, images)
    found = timed("predict", lambda: run_plain(table(options, images, folder / "table.csv")))
    bare = (before + bare_speed(given, images)) / 2
    speed = count / max(found["seconds"] - one["seconds"], 1e-9)
    return {
        **found,
        "images": count,
        "broken": broken,
        "seconds_of_one_image": one["seconds"],
        "images_a_second": round(speed, 1),
        "bare_images_a_second": round(bare, 1),
        "share_of_bare": round(speed / bare, 3),
        "goals": {"images_a_second": SPEED, "share_of_bare": SHARE},
        "reached": {"images_a_second": speed >= SPEED, "share_of_bare": speed >= SHARE * bare},
    }


def run_plain(words: list[str]) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def measured(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"machine": machine()}
    given = options.run
    if "demo" in options.only or given is None:
        found["demo"] = demo(folder)
        given = given or folder / "demo"
    if "report" in options.only:
        found |= report(given, folder)
    if "serve" in options.only:
        found["serve"] = serve(given)
    if "predict" in options.only:
        found["predict"] = predict(given, folder, options.images)
    return found


def arguments() -> argparse.Namespace:
    parts = ["demo", "report", "serve", "predict"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--run", type=Path, help="a run folder (default: the demo's)")
    parser.add_argument("--images", type=int, default=2000, help="of the table")
    parser.add_argument("--out", type=Path, help="a JSON file")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPROTONET_CACHE"] = str(Path(folder) / "cache")  # of all commands
        found = measured(options, Path(folder))
    tell(found)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
