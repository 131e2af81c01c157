"""What looks like that prototype? The target is a similarity inside the network of another library.

A ProtoPNet as it was published: prototypes that every place is compared with. Put your own network here; runs
of the original code, and of CaBRNet, come whole by `dprotonet import`.

python examples/prototype_of_another_library.py [FOLDER]
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import dprotonet as dp

out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/protopnet")


class ProtoPNet(nn.Module):
    def __init__(self, backbone: nn.Module, prototypes: Tensor, classes: Tensor) -> None:
        super().__init__()
        self.backbone, self.prototypes = backbone, nn.Parameter(prototypes)  # (P, D)
        self.last = nn.Linear(len(prototypes), int(classes.max()) + 1, bias=False)
        self.last.weight.data = torch.where(
            classes == torch.arange(self.last.out_features)[:, None], 1.0, -0.5
        )

    def similarities(self, images: Tensor) -> Tensor:
        features = nn.functional.normalize(self.backbone.forward_features(images))
        distance = (
            (features.unsqueeze(1) - self.prototypes[..., None, None]).square().sum(dim=2).amin(dim=(2, 3))
        )
        return torch.log((distance + 1) / (distance + 1e-4))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        similarities = self.similarities(images)
        return self.last(similarities), similarities  # a tuple, as CaBRNet returns one


classifier = dp.classifier("timm:tf_efficientnet_lite0:packaged")
birds = dp.Birds(species=4, per_species=1)
samples = [birds[index] for index in range(4)]
images = classifier.inputs([sample.image for sample in samples])
with torch.no_grad():  # prototypes as a push leaves them: a place of a training image each
    vectors = nn.functional.normalize(classifier.module.forward_features(images))[:, :, 2, 3]
network = ProtoPNet(classifier.module, vectors, torch.arange(4)).eval()

test = dp.Birds(species=4, per_species=1, split="test")[0]
image = classifier.inputs([test.image])
decision = dp.MDM(network, output=0).explain(image)[0]
prototype = dp.MDM(network).explain(image, lambda seen: network.similarities(seen)[:, 0])[0]
for name, explanation in (("decision", decision), ("prototype", prototype)):
    explanation.save(out / name, image=test.image)
    print(name, explanation, explanation.box())
