"""A fair clock: every network of the comparison on the same backbone, batch and images, in one run.

    python benchmarks/networks.py [--backbone timm:resnet50:none] [--batch 60] [--classes 200] [--repeats 4]

DProtoNet with spatial and with uniform masks, the four rivals and the black box, built and scored as
`dprotonet train` does. A training step is forward, loss, backward and Adam over all parameters; a prediction
is a forward pass of the same batch, told for one image. They are taken in turns, and the fastest of each
counts. Peak memory is that of a process of its own for each network, less that of one which only imports.
Ratios are to the black box. JSON on stdout, the table on stderr.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from timing import alternating_seconds, peak_mb, say, tell
from torch import Tensor, nn

from dprotonet.compat import keep_freed_memory
from dprotonet.config import Config
from dprotonet.experiment.build.network import build_network
from dprotonet.experiment.build.training import build_loss
from dprotonet.experiment.settings.recipes import config_from
from dprotonet.network import BlackBox, Network
from dprotonet.training.objective import PlainObjective, WholeObjective
from dprotonet.training.occurrence import OccurrenceObjective

PLAIN, IDLE = "black box", "imports alone"
NETWORKS: dict[str, dict[str, Any]] = {
    PLAIN: {"network": "blackbox"},
    "DProtoNet, spatial": {"network": "dprotonet", "mask_style": "spatial"},
    "DProtoNet, uniform": {"network": "dprotonet", "mask_style": "uniform"},
    "ProtoPNet": {"network": "protopnet"},
    "NP-ProtoPNet": {"network": "np-protopnet"},
    "Gen-ProtoPNet": {"network": "gen-protopnet"},
    "XProtoNet": {"network": "xprotonet"},
}
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}  # the latter sums over threads
COLUMNS = ("parameters", "training_seconds", "prediction_seconds", "training_mb", "prediction_mb")


def built(name: str, options: argparse.Namespace) -> tuple[Config, Network]:
    config = config_from({"network": {**NETWORKS[name], "backbone": options.backbone}})
    torch.manual_seed(0)
    network = build_network(
        config.network, classes=options.classes, image_size=options.pixels, pretrained=False
    )
    return config, network


def objective(config: Config, network: Network) -> nn.Module:
    """What its training minimises."""
    if isinstance(network, BlackBox):
        return PlainObjective(network)
    loss = build_loss(config.training)
    if config.training.occurrence:
        return OccurrenceObjective(network, loss, weight=config.training.occurrence)
    return WholeObjective(network, loss)


def training_step(config: Config, network: Network, batch: tuple[Tensor, Tensor]) -> Callable[[], None]:
    aim = objective(config, network)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4)

    def step() -> None:
        network.train()
        optimiser.zero_grad(set_to_none=True)
        aim(*batch).terms.total.backward()
        optimiser.step()

    return step


def prediction(network: Network, images: Tensor) -> Callable[[], Tensor]:
    @torch.inference_mode()
    def step() -> Tensor:
        logits: Tensor = network.eval()(images)
        return logits

    return step


def batch_of(options: argparse.Namespace) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(options.batch, 3, options.pixels, options.pixels, generator=generator)
    return images, torch.randint(options.classes, (options.batch,), generator=generator)


def alone(name: str, options: argparse.Namespace) -> dict[str, float]:
    """The high-water marks of this process after a prediction, and after a training step."""
    if name == IDLE:
        return {"training_mb": peak_mb(), "prediction_mb": peak_mb()}
    (config, network), batch = built(name, options), batch_of(options)
    prediction(network, batch[0])()
    predicting = peak_mb()
    training_step(config, network, batch)()
    return {"training_mb": peak_mb(), "prediction_mb": predicting}


def peaks(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Peak memory of each network in MB, above that of a process which only imports."""
    found = {}
    for name in (IDLE, *NETWORKS):
        say(f"memory of {name}")
        command = [sys.executable, __file__, *sys.argv[1:], "--alone", name]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found[name] = json.loads(told)
    idle = found.pop(IDLE)
    return {name: {key: peak[key] - idle[key] for key in peak} for name, peak in found.items()}


def seconds(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Parameters and times of each network, all kept at hand and asked in turns."""
    batch, steps, facts = batch_of(options), {}, {}
    for name in NETWORKS:
        config, network = built(name, options)
        steps[f"{name}: prediction"] = prediction(network, batch[0])
        steps[f"{name}: training"] = training_step(config, network, batch)
        facts[name] = sum(parameter.numel() for parameter in network.parameters())
    taken = alternating_seconds(steps, repeats=options.repeats, clock=CLOCKS[options.clock])
    return {
        name: {
            "parameters": facts[name],
            "training_seconds": min(taken[f"{name}: training"]),
            "prediction_seconds": min(taken[f"{name}: prediction"]) / options.batch,
            "all_training_seconds": taken[f"{name}: training"],
            "all_prediction_seconds": [value / options.batch for value in taken[f"{name}: prediction"]],
        }
        for name in NETWORKS
    }


def table(networks: dict[str, dict[str, Any]]) -> str:
    """Markdown; in brackets the ratio to the black box."""
    heads = ["network", "parameters", "s a training step", "ms a prediction", "MB training", "MB prediction"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, found in networks.items():
        ratio = {key: f"({found[f'{key}_ratio']:.2f})" for key in COLUMNS}
        cells = [
            f"{found['parameters'] / 1e6:.1f} M {ratio['parameters']}",
            f"{found['training_seconds']:.2f} {ratio['training_seconds']}",
            f"{1000 * found['prediction_seconds']:.1f} {ratio['prediction_seconds']}",
            f"{found['training_mb']:.0f} {ratio['training_mb']}",
            f"{found['prediction_mb']:.0f} {ratio['prediction_mb']}",
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", default="timm:tf_efficientnet_lite0:none")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--classes", type=int, default=50)
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: where others use the machine")
    parser.add_argument("--alone", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    keep_freed_memory()  # as the commands do
    options = arguments()
    if options.alone:
        print(json.dumps(alone(options.alone, options)))
        return
    memory = peaks(options)
    networks = {name: {**found, **memory[name]} for name, found in seconds(options).items()}
    for found in networks.values():
        found |= {f"{key}_ratio": found[key] / networks[PLAIN][key] for key in COLUMNS}
    settings = {key: value for key, value in vars(options).items() if key != "alone"}
    say(table(networks))
    tell(
        {
            "benchmark": "networks",
            "settings": {**settings, "threads": torch.get_num_threads()},
            "networks": networks,
        }
    )


if __name__ == "__main__":
    main()
