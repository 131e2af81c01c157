"""A training step of CaBRNet's ProtoPNet, for `joint_step.py`, which runs this file in CaBRNet's environment.

It needs torch, timm and cabrnet and nothing of dprotonet; it reads the same images and prints a JSON object.
The network is ProtoPNet with its authors' sizes, the step CaBRNet's own, with one Adam over all parameters.
"""

import argparse
import ctypes
import importlib
import json
import resource
import sys
import time
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

DIMENSION, PER_CLASS = 128, 10


def make_torchvision_importable() -> object:
    """Beside a CPU-only torch the schemas of two of its operators, which nobody here calls, are missing."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        try:
            torch._C._dispatch_find_schema_or_throw(f"torchvision::{operator}", "")
        except RuntimeError:
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


class Trunk(nn.Module):
    """A timm model up to its feature map. CaBRNet traces backbones; what is torch's own stays whole."""

    __module__ = "torch.nn"

    def __init__(self, name: str) -> None:
        super().__init__()
        self.model = importlib.import_module("timm").create_model(name, num_classes=0)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.model.forward_features(images)
        return features


def protopnet(backbone: str, classes: int) -> Any:
    """CaBRNet takes torchvision's models by name, so the trunk is given one there."""
    registry = importlib.import_module("torchvision.models._api")
    registry.register_model("trunk_of_timm")(lambda **_: nn.Sequential(OrderedDict(trunk=Trunk(backbone))))
    extractors = importlib.import_module("cabrnet.archs.generic.conv_extractor")
    decisions = importlib.import_module("cabrnet.archs.protopnet.decision")
    models = importlib.import_module("cabrnet.archs.protopnet.model")

    def convolution() -> dict[str, Any]:
        return {"type": "Conv2d", "params": {"out_channels": DIMENSION, "kernel_size": 1}}

    add_on = {
        "conv1": convolution(),
        "relu1": {"type": "ReLU"},
        "conv2": convolution(),
        "sigmoid1": {"type": "Sigmoid"},
    }
    extractor = extractors.ConvExtractor(
        {
            "backbone": {"arch": "trunk_of_timm", "weights": "None"},
            "convnet": {"source_layer": "trunk", "add_on": add_on},
        }
    )
    classifier = decisions.ProtoPNetClassifier(
        similarity_config={"name": "ProtoPNetSimilarity"},
        num_classes=classes,
        num_features=DIMENSION,
        num_proto_per_class=PER_CLASS,
    )
    return models.ProtoPNet(extractor, classifier)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", required=True)
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--classes", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--keep-freed", action="store_true")
    options = parser.parse_args()
    if options.keep_freed:  # as dprotonet's commands do
        ctypes.CDLL(None).mallopt(-1, 2**31 - 1)
        ctypes.CDLL(None).mallopt(-3, 2**30)
    library = make_torchvision_importable()
    torch.manual_seed(0)
    network = protopnet(options.backbone, options.classes)
    data = np.load(options.images)
    batch = [(torch.from_numpy(data["images"]), torch.from_numpy(data["labels"]))]
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    seconds, cpu = [], []
    for _ in range(options.steps):
        started, used = time.perf_counter(), time.process_time()
        network._train_epoch({"train_set": batch}, optimizer, device="cpu")
        seconds.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
    del library
    peak = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
    )
    parameters = sum(parameter.numel() for parameter in network.parameters())
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "peak_mb": peak, "parameters": parameters}))


if __name__ == "__main__":
    main()
