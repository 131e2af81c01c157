"""Why is this region called bird? The target is the score of a class, summed over a region of the output.

python examples/segmentation_inside_a_region.py [FOLDER]
"""

import sys
from pathlib import Path

import torch
from torch.nn.functional import adaptive_avg_pool2d

import dprotonet as dp

out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/segmentation")
classifier = dp.classifier("timm:tf_efficientnet_lite0:packaged")
train, test = (dp.Birds(species=4, per_species=10, split=split) for split in ("train", "test"))
samples = [train[index] for index in range(len(train))]
with torch.no_grad():  # a segmentation head in one line of algebra: where is bird? Put your own network here
    features = classifier.module.forward_features(classifier.inputs([sample.image for sample in samples]))
birds = adaptive_avg_pool2d(torch.stack([sample.truth for sample in samples]).float(), features.shape[2:])
rows = features.movedim(1, -1).flatten(0, 2)
weight = torch.linalg.solve(rows.T @ rows + 100 * torch.eye(rows.shape[1]), rows.T @ birds.flatten())


def score_map(images: torch.Tensor) -> torch.Tensor:
    return torch.einsum("bchw,c->bhw", classifier.module.forward_features(images), weight)


sample = test[3]
images = classifier.inputs([sample.image])
found = score_map(images).detach() > 0.5  # the region that the network itself calls bird
(explanation,) = dp.MDM(classifier.module).explain(images, lambda seen: (score_map(seen) * found).sum((1, 2)))
explanation.save(out, image=sample.image)
print(f"{int(found.sum())} places are called bird;", explanation, explanation.box())
