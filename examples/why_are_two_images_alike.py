"""Why are these two alike? The target is the similarity of an image's embedding to that of another image.

python examples/why_are_two_images_alike.py [FOLDER]
"""

import sys
from functools import partial
from pathlib import Path

import torch
from torch.nn.functional import cosine_similarity

import dprotonet as dp

out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/alike")
classifier = dp.classifier("timm:tf_efficientnet_lite0:packaged")
birds = [dp.Birds(species=2, per_species=2, split="test")[index].image for index in (0, 1)]  # of one species
one, other = classifier.inputs(birds).split(1)


def embedded(images: torch.Tensor) -> torch.Tensor:
    return classifier.module.forward_features(images).mean(dim=(2, 3))


def similarity(known: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    return cosine_similarity(embedded(images), known)


for name, image, reference, shown in (("one", one, other, birds[0]), ("other", other, one, birds[1])):
    known = embedded(reference).detach()
    alike = dp.CallableNode(partial(similarity, known), name="similarity")
    (explanation,) = dp.MDM(classifier.module).explain(image, alike)
    explanation.save(out / name, image=shown)
    print(name, f"{similarity(known, image).item():.2f} alike", explanation.box())
