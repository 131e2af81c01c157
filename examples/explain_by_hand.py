"""The network without the run folder: any backbone, any regions, evidence as tensors.

python examples/explain_by_hand.py
"""

import torch

from dprotonet.encoder.backbone import load_backbone
from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.regions import Points
from dprotonet.encoder.shaping import Shaping
from dprotonet.inference.head import Head
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.similarity import CosineSimilarity
from dprotonet.network import DProtoNet

backbone = load_backbone("timm:tf_efficientnet_lite0:packaged", image_size=224)
regions = Points(64, backbone.feature_size(224))
prototypes = Prototypes(classes=5, per_class=3, dimension=64, similarity=CosineSimilarity())
encoder = Encoder(backbone, Shaping(backbone.channels, 64), regions)
network = DProtoNet(encoder, prototypes, Head(prototypes.prototype_class)).eval()

with torch.no_grad():
    evidence = network.evidence(torch.rand(2, 3, 224, 224))
label = evidence.logits.argmax(1)
points = network.contributions(evidence, label)
print("logits", evidence.logits.max(1).values, "sums of contributions", points.sum(1))
