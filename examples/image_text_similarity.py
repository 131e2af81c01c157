"""Why does this image fit that text? The target is the similarity of the answers of two encoders, as in CLIP.

python examples/image_text_similarity.py [FOLDER]
"""

import sys
from functools import partial
from pathlib import Path

import torch
from torch.nn.functional import cosine_similarity

import dprotonet as dp

out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/image-text")
classifier = dp.classifier("timm:tf_efficientnet_lite0:packaged")
birds = dp.Birds(species=6, per_species=10)
words = {
    word: number for number, word in enumerate(sorted({w for name in birds.classes for w in name.split()}))
}
text_encoder = torch.nn.EmbeddingBag(len(words), 32, mode="sum", _weight=torch.eye(32)[: len(words)])


def text(sentence: str) -> torch.Tensor:
    return text_encoder(torch.tensor([[words[word] for word in sentence.split()]])).detach()


with torch.no_grad():  # the image encoder learns the texts of sixty birds in one line of algebra
    images = [birds[index].image for index in range(len(birds))]
    rows = classifier.module.forward_features(classifier.inputs(images)).mean(dim=(2, 3))
    wanted = torch.cat([text(birds.classes[label]) for label in birds.labels])
    projection = torch.linalg.solve(rows.T @ rows + torch.eye(rows.shape[1]), rows.T @ wanted)


def similarity(said: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    return cosine_similarity(classifier.module.forward_features(seen).mean(dim=(2, 3)) @ projection, said)


two = torch.cat([images[0], images[40]], dim=-1)  # two species side by side
shown = torch.cat(classifier.inputs([images[0], images[40]]).split(1), dim=-1)
for label in (birds.labels[0], birds.labels[40]):
    sentence = birds.classes[label]
    fits = dp.CallableNode(partial(similarity, text(sentence)), name=sentence)
    (explanation,) = dp.MDM(classifier.module).explain(shown, fits)
    explanation.save(out / sentence.replace(" ", "-"), image=two)
    left = float(explanation.heatmap[:, :224].sum() / explanation.heatmap.sum())
    print(f"'{sentence}': {left:.0%} of the heat lies on the left bird, {birds.classes[birds.labels[0]]}")
