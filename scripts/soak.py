"""`make soak`: a server under mixed load for an hour, then a table of 20,000 small images: what grows?

Memory, file handles and threads of `dprotonet serve` and `dprotonet predict` are looked at every few seconds.
The JSON has slopes by least squares after a warm-up, with standard errors. Looks and parts that are done stay
in --work: a part that is done is not done again. Everything is on this machine, at 127.0.0.1.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
os.environ.setdefault("OMP_NUM_THREADS", "1")

from scripts.soak_clients import CLIENTS, Refused, Visit  # noqa: E402
from scripts.soak_samples import Watch, asleep, computed, slopes  # noqa: E402

from dprotonet.data.birds import Birds  # noqa: E402

_TRAINING = [
    *["--data", "birds", "--species", "4", "--train-per-species", "20"],
    *[
        "--val-per-species",
        "8",
        "--test-per-species",
        "10",
        "--mode",
        "frozen",
        "--calibration",
        "validation",
    ],
]
_WARM = 0.25  # of the time, or of the images: what is kept of purpose fills up
_VISITORS = 3  # at a time
_REST = 9  # looks; after so many the server is left alone until it rests
_PATIENCE = 60  # seconds that it may take to come to rest
_EDGE = 96


def main() -> int:
    options = _arguments()
    options.work.mkdir(parents=True, exist_ok=True)
    done = options.work / "done.json"
    content = json.loads(done.read_text()) if done.exists() else {"command": "make soak"}
    parts: dict[str, Callable[[argparse.Namespace], dict]] = {"serve": serve, "predict": predict}
    for name in [name for name in options.parts if name not in content]:
        content[name] = parts[name](options)
        done.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    text = json.dumps(content, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("runs/soak"), help="looks, images, parts done")
    parser.add_argument("--run", type=Path, default=None, help="a run folder; default: a small one of birds")
    parser.add_argument("--parts", nargs="+", choices=["serve", "predict"], default=["serve", "predict"])
    parser.add_argument("--minutes", type=float, default=60, help="of load on the server")
    parser.add_argument("--share", type=float, default=0.5, help="of a core that the server may compute")
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--every", type=float, default=10, help="seconds between looks at the server")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="also write the JSON there")
    return parser.parse_args()


def _dprotonet(*words: str) -> list[str]:
    return [sys.executable, "-m", "dprotonet", *words]


def _run(options: argparse.Namespace) -> Path:
    if options.run is None:
        options.run = options.work / "run"
    if not (options.run / "model.safetensors").exists():
        words = ["train", *_TRAINING, "--overwrite", "--out", str(options.run)]
        subprocess.run(_dprotonet(*words), check=True, stdout=subprocess.DEVNULL)
    return options.run


# ── the server ──


def serve(options: argparse.Namespace) -> dict[str, Any]:
    run, answers = _run(options), Counter[str]()
    with _served(run) as (address, process), (options.work / "serve.jsonl").open("w") as file:
        watch, end = Watch(process, file, options.every), time.monotonic() + 60 * options.minutes
        pace = _Pace(process, options.share, end)
        chances = [random.Random(f"{options.seed} {number}") for number in range(_VISITORS)]
        for chance in chances:
            visit = Visit(address, chance, _pictures())
            threading.Thread(target=_visit, args=(visit, answers, pace), daemon=True).start()
        while time.monotonic() < end:
            watch.look_if_due(answers=answers.total(), rest=0)
            if watch.looks and len(watch.looks) % _REST == 0 and pace.rest():
                watch.look(answers=answers.total(), rest=1)
            pace.go_on()
            time.sleep(0.2)
    return {"network": _network(run), **_grown(watch.looks, answers, options)}


def _network(run: Path) -> str:
    config = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
    return f"{config['network']['backbone']} at {config['data']['image_size']} pixels"


def _grown(
    seen: list[dict[str, float]], answers: Counter[str], options: argparse.Namespace
) -> dict[str, Any]:
    looks = [{**look, "hours": look["seconds"] / 3600} for look in seen]
    busy, rests = ([look for look in looks if look["rest"] == rest] for rest in (0, 1))
    warm = _WARM * options.minutes / 60
    return {
        "minutes": options.minutes,
        "looks": len(busy),
        "looks at rest": len(rests),
        "computed": round(looks[-1]["cpu"] - looks[0]["cpu"]),
        "warm-up in minutes": round(60 * warm, 2),
        "visits": answers.total(),
        "answers": dict(sorted(answers.items())),
        "slopes per hour": slopes(busy, warm),
        "slopes per hour at rest": slopes(rests, warm),
        "least own memory at rest, by quarters": _least(rests, "own"),
        "at rest": _some(rests),
    }


def _some(looks: list[dict[str, float]]) -> list[dict[str, float]]:
    """A look at each tenth of the way."""
    chosen = [looks[round(share * (len(looks) - 1) / 10)] for share in range(11)]
    return [{key: round(value, 2) for key, value in look.items()} for look in chosen]


def _least(looks: list[dict[str, float]], name: str) -> list[float]:
    """Of each quarter: what is kept for good is kept then as well."""
    edges = [round(share * len(looks) / 4) for share in range(5)]
    return [round(min(look[name] for look in looks[a:b]), 1) for a, b in pairwise(edges)]


@contextmanager
def _served(run: Path) -> Iterator[tuple[str, int]]:
    server = subprocess.Popen(_dprotonet("serve", str(run), "--port", "0"), stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().split()[-1].rstrip("/"), server.pid
    finally:
        server.terminate()
        server.wait(60)


class _Pace:
    """Visitors wait until the server has computed no more than its share of the time, and while it rests."""

    def __init__(self, process: int, share: float, end: float) -> None:
        self._process, self._share, self.end = process, share, end
        self._begun, self._before = time.monotonic(), computed(process)
        self._open, self._inside, self._lock = threading.Event(), 0, threading.Lock()
        self._open.set()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A visit, when it is time for one."""
        while time.monotonic() < self.end and (self._ahead() or not self._open.is_set()):
            time.sleep(0.1)
        with self._lock:
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1

    def rest(self) -> bool:
        """No more visits, until all threads of the server sleep; false if it goes on computing."""
        self._open.clear()
        end, quiet = time.monotonic() + _PATIENCE, 0
        while time.monotonic() < end and quiet < 20:
            time.sleep(0.1)
            quiet = quiet + 1 if self._inside == 0 and asleep(self._process) else 0
        return quiet == 20

    def go_on(self) -> None:
        self._open.set()

    def _ahead(self) -> bool:
        allowed = self._share * (time.monotonic() - self._begun)
        return computed(self._process) - self._before > allowed


def _visit(visit: Visit, answers: Counter[str], pace: _Pace) -> None:
    clients, weights = list(CLIENTS), list(CLIENTS.values())
    while time.monotonic() < pace.end:
        (client,) = visit.chance.choices(clients, weights)
        with pace.turn():
            try:
                said = client(visit)
            except Refused as refusal:
                said = f"refused {refusal}"
            except OSError as error:
                said = type(error).__name__
            answers[f"{client.__name__}: {said}"] += 1


def _pictures() -> list[Image.Image]:
    birds = Birds(species=4, per_species=4, split="test", seed=7, size=160)
    return [Image.fromarray(birds[number].image.permute(1, 2, 0).numpy()) for number in range(len(birds))]


# ── a table ──


def predict(options: argparse.Namespace) -> dict[str, Any]:
    run, folder = _run(options), _photographs(options.work / "images", options.images)
    out = options.work / "answers.csv"
    command = _dprotonet("predict", str(run), str(folder), "--out", str(out), "--overwrite", "--json")
    with (options.work / "predict.jsonl").open("w") as file:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        watch, part = Watch(child.pid, file, min(options.every, 2.0)), _Rows(Path(f"{out}.part"))
        while child.poll() is None:
            watch.look_if_due(rows=part.count())
            time.sleep(0.1)
    if child.returncode:
        raise SystemExit(f"predict failed with {child.returncode}")
    most = max(look["rows"] for look in watch.looks)
    looks = [
        {**look, "thousands": look["rows"] / most * options.images / 1000}
        for look in watch.looks
        if look["rows"]
    ]
    said = json.loads(child.stdout.read() if child.stdout else "{}")
    return {
        "network": _network(run),
        "images": said["images"],
        "broken": len(said["unreadable"]),
        "edge": _EDGE,
        "looks": len(looks),
        "computed": round(looks[-1]["cpu"]),
        "warm-up in thousands": round(_WARM * options.images / 1000, 3),
        "slopes per thousand images": slopes(looks, _WARM * options.images / 1000, per="thousands"),
        "by tenths": _some(looks),
    }


class _Rows:
    """Lines of a file that grows, counted without reading it again."""

    def __init__(self, path: Path) -> None:
        self._path, self._place, self._lines = path, 0, 0

    def count(self) -> int:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._place)
                new = file.read()
            self._place, self._lines = self._place + len(new), self._lines + new.count(b"\n")
        return self._lines


def _photographs(folder: Path, count: int) -> Path:
    """So many different small JPEGs, every 997th of them broken."""
    pictures = _pictures()
    for number in range(count):
        path = folder / f"{number // 1000:02d}" / f"{number:05d}.jpg"
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = pictures[number % len(pictures)].resize((_EDGE, _EDGE)).rotate(number / count * 360)
        picture.save(path, quality=85)
        if number % 997 == 500:
            path.write_bytes(path.read_bytes()[:300])
    return folder


if __name__ == "__main__":
    sys.exit(main())
