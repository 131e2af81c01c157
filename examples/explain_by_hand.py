"""The network without the run folder: any backbone, any regions, evidence as tensors.

python examples/explain_by_hand.py
"""

import torch

import dprotonet as dp

settings = dp.NetworkConfig(regions="points", similarity="cosine", dimension=64, prototypes_per_class=3)
network = dp.build_network(settings, classes=5, image_size=224, pretrained=True).eval()

with torch.no_grad():
    evidence = network.evidence(torch.rand(2, 3, 224, 224))
label = evidence.logits.argmax(1)
points = network.contributions(evidence, label)
print("logits", evidence.logits.max(1).values, "sums of contributions", points.sum(1))
