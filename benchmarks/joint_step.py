"""Time and memory of a joint step: ours, the plain timm classifier's, and that of CaBRNet's ProtoPNet.

    python benchmarks/joint_step.py [--batch 60] [--classes 25] [--cabrnet-python VENV/bin/python]

Every network has a process of its own, so that peaks of memory do not mix, and they take turns over several
rounds. All see the same images of the built-in birds on the same backbone, without weights. Ours are trained
by the engine, as `dprotonet train --mode joint` does; `timm` is its classifier in the usual loop of a script.
The commands keep freed memory (`compat.keep_freed_memory`), which a script does not: `timm` and `cabrnet` are
measured both ways, as they are and `kept`, and `timm` with our layout of weights, too. CPU seconds count, the
fewest of all steps after the first: others on the machine disturb them least. CaBRNet wants an environment
of its own (`pip install cabrnet timm`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from timing import peak_mb, say, tell
from torch.nn.functional import cross_entropy

from dprotonet.compat import import_guarded, keep_freed_memory
from dprotonet.config import Config, DataConfig, NetworkConfig, TrainingConfig
from dprotonet.data.birds import Birds, bird_splits
from dprotonet.data.transforms import Normalise, View, Views
from dprotonet.encoder.backbone import load_backbone
from dprotonet.experiment.build.training import build_accelerator, build_loss, build_stages
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.experiment.settings.recipes import final_config
from dprotonet.training.engine import Engine, EngineSettings
from dprotonet.training.events import EpochDone, StepDone
from dprotonet.training.memory import kept_bytes, lay_out
from dprotonet.training.phases import Phase
from dprotonet.training.push import Pusher

BACKBONE, PIXELS, MEMORY_TARGET = "tf_efficientnet_lite0", 224, 1.15
RECIPES = {"masks": "masks", "parts": "parts", "protopnet": "protopnet", "blackbox": "blackbox"}
OPTIONS: dict[str, dict[str, object]] = {
    "masks, accumulate 4": {"accumulate": 4},
    "masks, checkpoint-activations": {"checkpoint_activations": True},
    "masks, channels_first": {"memory_format": "channels_first"},
    "masks, bf16": {"mixed_precision": "bf16"},
}
SCRIPTS = ("timm", "timm, kept", "timm, kept, channels_last")
CABRNET = ("cabrnet", "cabrnet, kept")


@dataclass(frozen=True)
class Drawn:
    """Some images, read and normalised before, as views."""

    images: torch.Tensor
    labels: Sequence[int]
    augmentations: int | None = 0

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, key: tuple[int, int]) -> View:
        return View(self.images[key[0]], self.labels[key[0]], key[0])


def draw(batch: int, classes: int, path: Path) -> None:
    birds = Birds(species=classes, per_species=-(-batch // classes), split="train", seed=0, size=PIXELS)
    views = Views(birds, Normalise((0.5,) * 3, (0.5,) * 3), augment=None, seed=0)
    order = torch.randperm(len(views), generator=torch.Generator().manual_seed(0))[:batch].tolist()
    images = np.stack([views[index, 0].inputs.numpy() for index in order])
    np.savez(path, images=images, labels=np.array([birds.labels[index] for index in order]))


def kept_activations_mb(batch: int) -> float:
    """What the backbone keeps of a batch for the backward pass, by the tensors that autograd saves."""
    backbone = load_backbone(f"timm:{BACKBONE}:none", image_size=PIXELS)
    weights = sum(parameter.numel() * parameter.element_size() for parameter in backbone.parameters())
    return batch * (kept_bytes(backbone, PIXELS) - weights) / 1e6


# ── one network, in a process of its own ──


def our_config(subject: str, classes: int, batch: int) -> Config:
    recipe = RECIPES[subject.partition(",")[0]]
    return final_config(
        Config(
            DataConfig(species=classes, image_size=PIXELS),
            NetworkConfig(backbone=f"timm:{BACKBONE}:none"),
            TrainingConfig(mode="joint", batch_size=batch, **OPTIONS.get(subject, {})),  # type: ignore[arg-type]
            recipe=recipe,
        )
    )


def our_steps(config: Config, drawn: Drawn, steps: int) -> Iterator[object]:
    """Yields before the first step, and after each."""
    training, classes = config.training, config.data.species
    splits = bird_splits(
        species=classes,
        train_per_species=1,
        val_per_species=1,
        test_per_species=1,
        seed=0,
        size=PIXELS,
    )
    network = Trainer(config, Path("unused")).new_network(splits)
    accelerator = build_accelerator(training)
    lay_out(network.encoder.backbone, training.memory_format, accelerator.device)
    settings = EngineSettings(
        batch=training.batch_size,
        frozen_norm=training.batchnorm == "frozen",
        accumulate=training.accumulate,
        recomputes=training.checkpoint_activations,
    )
    one = Drawn(drawn.images[:1], drawn.labels[:1])
    engine = Engine(
        network, drawn, one, accelerator, Pusher(accelerator), loss=build_loss(training), settings=settings
    )
    joint = next(s for s in build_stages(config) if isinstance(s, Phase) and s.name == "joint")
    yield sum(parameter.numel() for parameter in network.parameters())
    for event in engine.run([replace(joint, epochs=steps)]):
        if isinstance(event, StepDone | EpochDone):  # an epoch is one step, and a look at one image
            yield event


def timm_steps(drawn: Drawn, classes: int, steps: int, *, last: bool) -> Iterator[object]:
    network = import_guarded("timm").create_model(BACKBONE, num_classes=classes).train()
    if last:
        network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    labels = torch.tensor(drawn.labels)
    yield sum(parameter.numel() for parameter in network.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(network(drawn.images), labels).backward()
        optimizer.step()
        yield StepDone("joint", 1, 1, 1, 0.0, 0.0)
        yield None


def measure(options: argparse.Namespace) -> None:
    """The steps of one network, as a JSON object."""
    if options.subject != "timm":
        keep_freed_memory()
    torch.manual_seed(0)
    data = np.load(options.images)
    drawn = Drawn(torch.from_numpy(data["images"]), data["labels"].tolist())
    if options.subject in SCRIPTS:
        last = options.subject.endswith("channels_last")
        events = timm_steps(drawn, options.classes, options.steps, last=last)
    else:
        config = our_config(options.subject, options.classes, options.batch)
        events = our_steps(config, drawn, options.steps)
    parameters = next(events)
    seconds, cpu = [], []
    started, used = time.perf_counter(), time.process_time()
    for event in events:
        if isinstance(event, StepDone):
            seconds.append(time.perf_counter() - started)
            cpu.append(time.process_time() - used)
        started, used = time.perf_counter(), time.process_time()
    tell({"seconds": seconds, "cpu_seconds": cpu, "peak_mb": peak_mb(), "parameters": parameters})


# ── all of them ──


def run(command: list[str]) -> dict[str, list[float]]:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(result.stderr[-2000:])
    found: dict[str, list[float]] = json.loads(result.stdout[result.stdout.index("{") :])
    return found


def commands(options: argparse.Namespace, images: Path) -> dict[str, list[str]]:
    shared = ["--images", str(images), "--classes", str(options.classes), "--steps", str(options.steps)]
    ours = [*SCRIPTS, *RECIPES, *(OPTIONS if options.options else ())]
    batch = ["--batch", str(options.batch)]
    found = {name: [sys.executable, __file__, *shared, *batch, "--subject", name] for name in ours}
    if options.cabrnet_python:
        script = str(Path(__file__).with_name("cabrnet_step.py"))
        plain = [options.cabrnet_python, script, *shared, "--backbone", BACKBONE]
        found |= {"cabrnet": plain, "cabrnet, kept": [*plain, "--keep-freed"]}
    return found


def cabrnet_missing(options: argparse.Namespace) -> str:
    if not options.cabrnet_python:
        return "no --cabrnet-python given"
    probe = [options.cabrnet_python, "-c", "import importlib.util as u; assert u.find_spec('cabrnet')"]
    try:
        found = not subprocess.run(probe, capture_output=True, check=False).returncode
    except OSError as error:
        return f"{options.cabrnet_python}: {error.strerror}"
    return "" if found else f"{options.cabrnet_python} has no cabrnet; pip install cabrnet timm there"


def rounds(each: dict[str, list[str]], count: int) -> dict[str, list[dict[str, list[float]]]]:
    found: dict[str, list[dict[str, list[float]]]] = {name: [] for name in each}
    for number in range(count):
        for name, command in each.items():
            found[name].append(run(command))
            last = found[name][-1]
            say(f"round {number + 1}, {name}: {min(last['cpu_seconds'][1:]):.2f} s, {last['peak_mb']:.0f} MB")
    return found


def summary(found: dict[str, list[dict[str, list[float]]]]) -> dict[str, dict[str, object]]:
    return {
        name: {
            "cpu_seconds": min(second for turn in turns for second in turn["cpu_seconds"][1:]),
            "peak_mb": float(np.median([turn["peak_mb"] for turn in turns])),
            "parameters": turns[0]["parameters"],
            "all_cpu_seconds": [turn["cpu_seconds"] for turn in turns],
            "all_seconds": [turn["seconds"] for turn in turns],
            "all_peak_mb": [turn["peak_mb"] for turn in turns],
        }
        for name, turns in found.items()
    }


def ratios(networks: dict[str, dict[str, object]], to: str) -> dict[str, dict[str, float]]:
    """Of every network to one of them."""
    if to not in networks:
        return {}

    def part(name: str, key: str) -> float:
        return round(networks[name][key] / networks[to][key], 3)  # type: ignore[operator]

    return {name: {"time": part(name, "cpu_seconds"), "memory": part(name, "peak_mb")} for name in networks}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=60)
    parser.add_argument("--classes", type=int, default=25)
    parser.add_argument("--steps", type=int, default=4, help="of each process; the first does not count")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--options", action="store_true", help="also DProtoNet with each setting of memory")
    parser.add_argument("--cabrnet-python", default="", help="python of an environment with cabrnet and timm")
    parser.add_argument("--subject", default="", help=argparse.SUPPRESS)
    parser.add_argument("--images", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.subject:
        measure(options)
        return
    missing = cabrnet_missing(options)
    if missing:
        say(f"without CaBRNet: {missing}")
        options.cabrnet_python = ""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images.npz"
        draw(options.batch, options.classes, images)
        networks = summary(rounds(commands(options, images), options.rounds))
    to_kept, ours = ratios(networks, "timm, kept"), ("masks", "parts", "blackbox", "protopnet")
    settings = {"backbone": BACKBONE, "pixels": PIXELS, "batch": options.batch, "classes": options.classes}
    threads = {"threads": os.environ["OMP_NUM_THREADS"], "rounds": options.rounds, "steps": options.steps}
    faster = {name: to["time"] < 1 for name, to in ratios(networks, "cabrnet, kept").items() if name in ours}
    tell(
        {
            "benchmark": "joint_step",
            "settings": {**settings, **threads, "without_cabrnet": missing},
            "kept_activations_mb": round(kept_activations_mb(options.batch)),
            "networks": networks,
            "to_timm_kept": to_kept,
            "to_timm": ratios(networks, "timm"),
            "to_cabrnet": ratios(networks, "cabrnet"),
            "to_cabrnet_kept": ratios(networks, "cabrnet, kept"),
            "memory_target": MEMORY_TARGET,
            "memory_reached": all(to_kept[name]["memory"] <= MEMORY_TARGET for name in ours),
            "faster_than_cabrnet_kept": faster,
        }
    )


if __name__ == "__main__":
    main()
