"""All ratios of speed and memory as one JSON object: each benchmark in a process of its own, shortened.

    python benchmarks/bench.py [--only NAME …] [--seconds 900] [--out FILE.json]

Sizes are small, so that all of it takes about a quarter of an hour on two idle cores; the scripts themselves
have the sizes that docs/results.md tells. A benchmark that fails or takes longer than `--seconds` is named in
`failed`, the others go on, and the exit code is 1. `counted_costs` are compared with those that are accepted:
what has grown is in `worse`, which no busy machine can cause. Other scripts in this folder measure
accuracy, or take minutes to hours whatever their size.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from timing import say, tell

HERE = Path(__file__).resolve().parent
RUN = "{run}"  # stands for a run folder, trained once for those that need one
TRAIN = (
    "--data birds --mode frozen --species 4 --train-per-species 12 --val-per-species 4 --test-per-species 4 "
    "--epochs 4 --warm-epochs 1 --push-every 2 --augmentations 1"
)


@dataclass(frozen=True)
class Benchmark:
    """How a script is called, and where its ratios are: dotted keys, numbers or tables of them."""

    options: str
    ratios: tuple[str, ...]


BENCHMARKS = {
    "nearest_region": Benchmark("--batch 15 --repeats 2", ("time_ratio", "memory_ratio")),
    "push_cost": Benchmark("--per-species 2 --repeats 1", ("ratio",)),
    "frozen_epoch": Benchmark("--per-species 10", ("speedup",)),
    "head_cost": Benchmark("--batch 8 --repeats 2", ("spatial_ratio", "uniform_ratio")),
    "levels": Benchmark("--batch 4 --repeats 2 --clock cpu", ("ratio to *",)),
    "prune": Benchmark("--images 1200 --repeats 1", ("times_faster",)),
    "decoding": Benchmark("--images 8 --repeats 2", ("of_full", "of_network")),
    "metrics": Benchmark(
        "--images 2 --repeats 2", ("*.quantus_ratio", "*.torchcam_ratio", "*.outside_share")
    ),
    "networks": Benchmark("--batch 4 --repeats 2 --clock cpu", ("networks.*.*_ratio",)),
    "joint_step": Benchmark("--batch 8 --classes 8 --steps 2 --rounds 1", ("to_timm_kept", "to_timm")),
    "starting": Benchmark(f"--run {RUN} --repeats 2", ("ratio_to_imports",)),
    "predict_files": Benchmark(
        f"--run {RUN} --images 96 --repeats 3 --clock cpu", ("ratio", "ratio_of_the_fastest")
    ),
    "counted_costs": Benchmark("", ("costs.*",)),
}


@cache
def trained(folder: Path) -> Path:
    """A small run with the packaged EfficientNet-Lite0."""
    run = folder / "run"
    command = [sys.executable, "-m", "dprotonet", "train", *TRAIN.split(), "--cache", str(folder / "cache")]
    subprocess.run([*command, "--out", str(run)], check=True, stdout=sys.stderr, stderr=sys.stderr)
    return run


def told(name: str, benchmark: Benchmark, run: Path | None, seconds: float) -> dict[str, Any]:
    """The JSON object that a script prints."""
    options = benchmark.options.replace(RUN, str(run)).split()
    command = [sys.executable, str(HERE / f"{name}.py"), *options]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=seconds)
    content: dict[str, Any] = json.loads(result.stdout[result.stdout.index("{") :])
    return content


def numbers(content: Any, path: str) -> Iterator[tuple[str, Any]]:
    """What lies at a dotted path, `*` standing for any part of a key; of a table all that is in it."""
    first, _, rest = path.partition(".")
    if not isinstance(content, dict):
        if not path and (content is None or isinstance(content, int | float)):
            yield "", content
        return
    for key, value in content.items():
        if not path or _fits(key, first):
            yield from ((f"{key}.{name}".rstrip("."), found) for name, found in numbers(value, rest))


def _fits(key: str, pattern: str) -> bool:
    before, star, after = pattern.partition("*")
    return key.startswith(before) and key.endswith(after) if star else key == pattern


def rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def measured(names: list[str], folder: Path, seconds: float) -> dict[str, Any]:
    ratios: dict[str, Any] = {}
    failed: dict[str, str] = {}
    taken: dict[str, float] = {}
    worse: list[str] = []
    for name in names:
        say(f"== {name}")
        begun = time.perf_counter()
        try:
            run = trained(folder) if RUN in BENCHMARKS[name].options else None
            content = told(name, BENCHMARKS[name], run, seconds)
        except (subprocess.SubprocessError, ValueError) as error:
            failed[name] = str(error)
            continue
        finally:
            taken[name] = round(time.perf_counter() - begun)
        paths = BENCHMARKS[name].ratios
        said = {key: rounded(value) for path in paths for key, value in numbers(content, path)}
        if said:
            ratios[name] = said
        else:
            failed[name] = f"it does not say {' or '.join(paths)}"
        worse += content.get("worse", [])
    return {"ratios": ratios, "worse": worse, "failed": failed, "seconds": taken}


def machine() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "load when it began": [round(value, 1) for value in os.getloadavg()],
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(BENCHMARKS), default=list(BENCHMARKS))
    parser.add_argument("--seconds", type=float, default=900.0, help="at most, for each benchmark")
    parser.add_argument("--out", type=Path, help="a JSON file")
    return parser.parse_args()


def main() -> None:
    options, about = arguments(), machine()
    with tempfile.TemporaryDirectory() as folder:
        found = {"machine": about, **measured(options.only, Path(folder), options.seconds)}
    tell(found)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if found["failed"] or found["worse"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
