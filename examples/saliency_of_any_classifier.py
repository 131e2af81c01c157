"""Where does an ImageNet classifier look? The MDM decoder needs the network and nothing else.

python examples/saliency_of_any_classifier.py [FOLDER]
"""

import sys
from pathlib import Path

import dprotonet as dp

out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/saliency")
classifier = dp.classifier("timm:tf_efficientnet_lite0:packaged")  # or timm:resnet50, or a run folder
images = classifier.inputs([dp.Birds(per_species=1, split="test")[index].image for index in (2, 4)])

decoder = dp.MDM(classifier.module)  # any nn.Module from images to logits
for number, explanation in enumerate(decoder.explain(images)):
    explanation.save(out / str(number))  # maps as .npy, pictures as .png, the rest as JSON
    print(explanation, explanation.box())

cheap = dp.preset("sampled", samples=100)  # forward passes only, for networks without gradients
heatmaps = dp.MDM(classifier.module, preset=cheap)(images)  # called like pytorch-grad-cam
print(f"maps and pictures are in {out}; sampled heatmaps: {heatmaps.shape}")
