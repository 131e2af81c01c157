"""How soon commands are there: CPU seconds until the first answer, against importing torch and timm alone.

    python benchmarks/starting.py [--run RUN] [--repeats 3]

Each in a process of its own, in turns; the fastest of each counts. `serve` is ready when its page has been
answered, `predict` when it has told the class of one image. CPU seconds, since a busy machine would make a
process wait; on an idle one they are about the seconds that a person waits. Without --run a tiny run with
the packaged EfficientNet-Lite0 is trained first.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

from PIL import Image
from timing import alternating_seconds, tell

from dprotonet.data.birds import Birds

IMPORTS = "imports"
TARGETS = {"help": 1.2, "serve": 4.0}  # seconds
RUN = (
    "--data birds --mode frozen --species 4 --train-per-species 6 --val-per-species 3 --test-per-species 3 "
    "--epochs 4 --warm-epochs 1 --push-every 2 --augmentations 1"
)


def cpu_of_children() -> float:
    """Seconds of all processes that have been waited for."""
    now = os.times()
    return now.children_user + now.children_system


def run(words: list[str]) -> None:
    subprocess.run([sys.executable, *words], check=True, capture_output=True)


def until_served(folder: str) -> None:
    """`dprotonet serve`, stopped as soon as its page is there."""
    command = [sys.executable, "-m", "dprotonet", "serve", folder, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        urllib.request.urlopen(address).read()
        server.terminate()


def trained(folder: Path) -> Path:
    run(["-m", "dprotonet", "train", *RUN.split(), "--cache", str(folder), "--out", str(folder / "run")])
    return folder / "run"


def photograph(folder: Path) -> Path:
    image = Birds(species=4, per_species=1, split="test", size=512)[0].image
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / "bird.jpg", quality=90)
    return folder / "bird.jpg"


def steps(folder: Path, given: Path | None) -> dict[str, Callable[[], object]]:
    model = str(given or trained(folder))
    return {
        IMPORTS: partial(run, ["-c", "import dprotonet, torch, timm"]),
        "help": partial(run, ["-m", "dprotonet", "--help"]),
        "predict": partial(run, ["-m", "dprotonet", "predict", model, str(photograph(folder))]),
        "serve": partial(until_served, model),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, help="a run folder (default: a small one is trained)")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asked = steps(Path(folder), options.run)
        taken = alternating_seconds(asked, repeats=options.repeats, clock=cpu_of_children)
    fastest = {name: min(values) for name, values in taken.items()}
    tell(
        {
            "benchmark": "starting",
            "repeats": options.repeats,
            "cpu_seconds": {name: round(value, 2) for name, value in fastest.items()},
            "ratio_to_imports": {
                name: round(value / fastest[IMPORTS], 2) for name, value in fastest.items() if name != IMPORTS
            },
            "targets": TARGETS,
            "reached": {name: fastest[name] <= most for name, most in TARGETS.items()},
        }
    )


if __name__ == "__main__":
    main()
