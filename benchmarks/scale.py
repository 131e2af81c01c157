"""Memory and disk of a whole run, from training to the page, as images, classes and prototypes grow.

    python benchmarks/scale.py --out docs/results/scale.json  # 200,000 images, 1,000 classes
    python benchmarks/scale.py --images 2000 --classes 20 --out small.json         # a hundredth of it

Small pictures of made-up classes are written as files first. Every step is a process of its own: training
(frozen features, push, last layer), accuracy, facts of prototypes, what if some were off and a cleaned run,
and the page's list. What is told is the peak of its resident memory, which the kernel counts (Linux), and the
seconds of CPU it took. A step that takes more than --limit gigabytes makes the script fail.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from timing import tell

SIDE = 32
HELD = 5  # images of a class to validate on, and as many to test on
_TRAINING = """
    --regions masks --masks 4 --dimension 8 --mode frozen --backbone timm:test_resnet:none --levels 2
    --image-size 32 --augmentations 0 --views-per-epoch 1 --push-images 1 --batch-size 500
    --epochs 1 --warm-epochs 0 --push-every 1 --last-layer-epochs 1
"""


# ── pictures ──


def pictures(folder: Path, options: argparse.Namespace) -> None:
    """ROOT/SPLIT/CLASS/NUMBER.png: every class a coarse pattern of its own, under noise."""
    chance = np.random.default_rng(options.seed)
    counts = {"train": options.images // options.classes, "val": HELD, "test": HELD}
    for label in range(options.classes):
        pattern = chance.integers(0, 200, (4, 4, 3)).repeat(8, axis=0).repeat(8, axis=1)
        for split, count in counts.items():
            home = folder / split / f"class{label:04d}"
            home.mkdir(parents=True)
            noise = chance.integers(0, 56, (count, SIDE, SIDE, 3))
            for number, picture in enumerate((pattern + noise).astype(np.uint8)):
                Image.fromarray(picture).save(home / f"{number:04d}.png", compress_level=0)


# ── steps, each in a process of its own ──


def train(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    from dprotonet.cli.main import main

    words = ["--prototypes-per-class", str(options.prototypes), "--cache", str(folder / "cache" / "features")]
    data = ["--data", f"folder:{folder / 'data'}", "--out", str(folder / "run")]
    if code := main(["train", *data, *_TRAINING.split(), *words]):
        raise SystemExit(f"train ended with {code}")
    return {"prototypes": options.classes * options.prototypes}


def evaluate(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    from dprotonet.experiment.evaluation.evaluation import evaluate_model

    model, _ = _model(folder)
    return {"accuracy": evaluate_model(model, model.config.data, split="test").predictions.accuracy}


def facts(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    from dprotonet.experiment.prototypes.facts import stored_facts

    model, data = _model(folder)
    found = stored_facts(model, data.train)
    return {"pure": sum(item.purity for item in found) / len(found)}


def what_if(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """On the training images, of which there are most; then without one prototype of every class for good."""
    from dprotonet.experiment.prototypes.cleaning import clean
    from dprotonet.experiment.prototypes.what_if import WhatIf

    model, data = _model(folder)
    asked = WhatIf(model, data.train)
    third = asked.accuracy(range(0, len(model.prototypes), 3))
    reasons = {number: "other" for number in range(0, len(model.prototypes), options.prototypes)}
    made = clean(model, reasons, {"train": asked, "val": data.val}, epochs=1)
    made.save(folder / "cleaned")
    return {"a_third_off": third, **{name: vars(item) for name, item in made.accuracy.items()}}


def listed(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All prototypes as the page gets them, and more of them off than an earlier API allowed."""
    from starlette.testclient import TestClient

    from dprotonet.web.app import create_app
    from dprotonet.web.service import Service, ServiceSettings

    found, largest = 0, 0
    service = Service(_model(folder)[0], ServiceSettings())
    with TestClient(create_app(service), base_url="http://localhost") as client:
        while client.get("/api/prototypes?limit=1").json()["state"] != "ready":
            time.sleep(0.2)
        while found < client.get("/api/prototypes?limit=1").json()["listed"]:
            answer = client.get(f"/api/prototypes?offset={found}")
            found += len(answer.json()["prototypes"])
            largest = max(largest, len(answer.content))
        off = [number for number in range(found) if number % options.prototypes]
        while (answer := client.post("/api/what-if", json={"off": off})).json().get("state") == "preparing":
            time.sleep(0.2)
    return {"prototypes": found, "largest_answer_bytes": largest, "off": len(off), **answer.json()}


STEPS: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    step.__name__: step for step in (train, evaluate, facts, what_if, listed)
}


def _model(folder: Path) -> tuple[Any, Any]:
    import dprotonet as dp
    from dprotonet.experiment.prototypes.split_evidence import splits_of_run

    model = dp.load(folder / "run")
    return model, splits_of_run(model)


# ── measuring ──


def step_of(name: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A step in a process of its own: what it found, megabytes at its peak, CPU seconds."""
    out = folder / f"{name}.json"
    words = [*sys.argv, "--step", name, "--folder", str(folder), "--out", str(out)]
    environment = {**os.environ, "DPROTONET_CACHE": str(folder / "cache")}
    done = subprocess.run([sys.executable, *words], env=environment, check=False, stdout=sys.stderr)
    if done.returncode:
        raise SystemExit(f"{name} ended with {done.returncode}")
    return dict(json.loads(out.read_text()))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    begun = time.process_time()
    found = STEPS[options.step](options.folder, options)
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    seconds = time.process_time() - begun
    return {"peak_megabytes": round(peak / 1024), "cpu_seconds": round(seconds, 1), "found": found}


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    pictures(folder / "data", options)
    steps = {}
    for name in options.steps or STEPS:
        steps[name] = step_of(name, folder, options)
        print(f"{name}: {steps[name]}", file=sys.stderr, flush=True)
    return {
        "images": options.images,
        "classes": options.classes,
        "prototypes": options.classes * options.prototypes,
        "side": SIDE,
        "limit_gigabytes": options.limit,
        "steps": steps,
        "disk_bytes": {name: on_disk(folder / name) for name in ("data", "cache", "run")},
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=200_000, help="to train on")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--prototypes", type=int, default=10, help="of each class")
    parser.add_argument("--limit", type=float, default=4.0, help="gigabytes that a step may take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scratch", help="a folder for pictures and run (default: the temporary one)")
    parser.add_argument("--steps", nargs="*", choices=STEPS, help="only these")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="JSON; other runs in it stay")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.step:
        options.out.write_text(json.dumps(measure(options)))
        return
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        found = run(options, Path(folder))
    tell(found)
    if options.out:
        name = f"{found['images']} images, {found['prototypes']} prototypes"
        whole = json.loads(options.out.read_text()) if options.out.exists() else {}
        options.out.write_text(json.dumps({**whole, name: found}, indent=1) + "\n", encoding="utf-8")
    most = max(step["peak_megabytes"] for step in found["steps"].values())
    if most > 1024 * options.limit:
        raise SystemExit(f"a step took {most / 1024:.1f} GB, more than {options.limit:g}")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
