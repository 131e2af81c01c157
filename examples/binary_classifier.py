"""Why ill, why healthy? A network with one logit: class 1 is its sigmoid, class 0 one minus it.

python examples/binary_classifier.py [FOLDER]
"""

import sys
from pathlib import Path

import torch
from torch import nn

import dprotonet as dp

out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/binary")
torch.manual_seed(0)
network = nn.Sequential(nn.Conv2d(3, 8, 7, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
network.append(nn.Linear(8, 1))  # untrained: put your own here
images = torch.randn(2, 3, 64, 64)

decoder = dp.MDM(network, classes=["healthy", "ill"])  # nothing more to say; task="regression" for a value
for name in ("ill", "healthy"):
    for number, explanation in enumerate(decoder.explain(images, name)):
        explanation.save(out / f"{number}-{name}")
        print(name, explanation, explanation.facts["task"])
