"""A table of many images: in one go, and killed at random and resumed each time. The same bytes?

    python benchmarks/predict_many.py --run RUN --images 10000 --out docs/results/predict-many.json

Small JPEGs are made first, some of them broken. Both tables are made by `dprotonet predict`, in processes of
its own. Memory is the resident size of the process, seen several times a second. Speed is CPU seconds beside
those of the bare network, which gets some of the same images decoded and normalised, before the table and
after it; what `dprotonet predict` of one image takes counts as its start. predict_files.py measures the same
in turns within one process, on larger photographs.
"""

import argparse
import filecmp
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from timing import tell

from dprotonet.data.birds import Birds
from dprotonet.experiment.trained.answered_files import batches_of
from dprotonet.experiment.trained.trained_model import TrainedModel

BATCH = 32
BARE = 30  # batches that the bare network gets
PICTURES = 240  # different birds; further images are these, shifted


def photographs(folder: Path, options: argparse.Namespace) -> int:
    """So many JPEGs in folders of a thousand, every 997th of them broken; how many are."""
    birds = Birds(species=12, per_species=PICTURES // 12, split="test", size=options.edge)
    pictures = [birds[number].image.permute(1, 2, 0) for number in range(PICTURES)]
    broken = 0
    for number in range(options.images):
        path = folder / f"{number // 1000:02d}" / f"{number:05d}.jpg"
        path.parent.mkdir(exist_ok=True, parents=True)
        shifted = pictures[number % PICTURES].roll(number // PICTURES, dims=1)
        Image.fromarray(shifted.contiguous().numpy()).save(path, quality=85)
        if number % 997 == 500:
            path.write_bytes(path.read_bytes()[: 300 * (number % 2)])
            broken += 1
    return broken


def not_broken(images: Path) -> list[Path]:
    return [path for path in sorted(images.rglob("*.jpg")) if int(path.stem) % 997 != 500]


def command(options: argparse.Namespace, *more: str | Path) -> list[str]:
    return [sys.executable, "-m", "dprotonet", "predict", str(options.run), *map(str, more)]


def table(options: argparse.Namespace, images: Path, out: Path) -> list[str]:
    return command(options, images, "--out", out, "--batch-size", str(BATCH), "--json")


@torch.no_grad()
def bare_seconds(options: argparse.Namespace, images: Path) -> float:
    """CPU seconds that the network takes for one image, decoded and normalised."""
    model = TrainedModel.load(options.run)
    whole = not_broken(images)
    inputs = [model.inputs(paths) for paths in batches_of(whole[: BARE * BATCH], BATCH)]
    model.network(inputs[0])  # the first is slower
    begun = time.process_time()
    for batch in inputs:
        model.network(batch)
    return (time.process_time() - begun) / sum(map(len, inputs))


def starting_seconds(options: argparse.Namespace, images: Path) -> float:
    """CPU seconds of a process that answers to one image."""
    before = os.times()
    subprocess.run(command(options, next(images.rglob("*.jpg"))), check=True, capture_output=True)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


def in_one_go(options: argparse.Namespace, images: Path, out: Path) -> dict[str, Any]:
    """CPU seconds, and resident megabytes at each tenth of the rows."""
    before, begun = os.times(), time.perf_counter()
    with subprocess.Popen(table(options, images, out), stdout=subprocess.PIPE, text=True) as process:
        seen = list(sizes(process, Path(f"{out}.part")))
        said = process.stdout.read() if process.stdout else ""
    if process.returncode:
        raise SystemExit(f"predict failed with {process.returncode}")
    after = os.times()
    cpu = sum(after[2:4]) - sum(before[2:4])  # of children
    batches = -(-options.images // BATCH)
    tenths = [[size for lines, size in seen if lines >= share * batches / 10] for share in range(1, 10)]
    return {
        "cpu_seconds": round(cpu, 1),
        "wall_seconds": round(time.perf_counter() - begun, 1),
        "megabytes_at_tenths": [later[0] for later in tenths if later],
        "megabytes_at_most": max(size for _, size in seen),
        "said": said,
    }


def sizes(process: "subprocess.Popen[str]", part: Path) -> Iterator[tuple[int, int]]:
    """Rows' batches that are there, and the resident size."""
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status")
        found = [line for line in status.read_text().splitlines() if line.startswith("VmRSS")]
        lines = part.read_bytes().count(b"\n") if part.exists() else 0
        if found:
            yield lines, round(int(found[0].split()[1]) / 1024)
        time.sleep(0.5)


def killed_and_resumed(options: argparse.Namespace, images: Path, out: Path) -> int:
    """Kill at random rows until the table is there; how often."""
    chance, kills = random.Random(options.seed), 0
    part, batches = Path(f"{out}.part"), -(-options.images // BATCH)
    while not out.exists():
        until = chance.randrange(batches) if kills < options.kills else 10**9
        with subprocess.Popen(table(options, images, out), stdout=subprocess.DEVNULL) as process:
            while process.poll() is None:
                if part.exists() and part.read_bytes().count(b"\n") > until:
                    process.kill()
                    kills += 1
                    break
                time.sleep(0.05)
        if process.returncode > 0:
            raise SystemExit(f"predict failed with {process.returncode}")
    return kills


def measured(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    images = folder / "images"
    broken = photographs(images, options)
    bare, start = bare_seconds(options, images), starting_seconds(options, images)
    found = in_one_go(options, images, folder / "one.csv")
    bare = (bare + bare_seconds(options, images)) / 2
    said = json.loads(found.pop("said"))
    kills = killed_and_resumed(options, images, folder / "killed.csv")
    return {
        "images": options.images,
        "edge": options.edge,
        "broken": broken,
        "named_as_broken": len(said["unreadable"]),
        **found,
        "pixels": TrainedModel.load(options.run).config.data.image_size,
        "bare_cpu_milliseconds_an_image": round(1000 * bare, 2),
        "starting_cpu_seconds": round(start, 1),
        "ratio": round(bare * options.images / found["cpu_seconds"], 3),
        "ratio_without_the_start": round(bare * options.images / (found["cpu_seconds"] - start), 3),
        "kills": kills,
        "same_bytes_after_kills": filecmp.cmp(folder / "one.csv", folder / "killed.csv", shallow=False),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="a run folder")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--edge", type=int, default=128)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a JSON file")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(options, Path(folder))
    tell(found)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
