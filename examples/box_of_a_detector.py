"""Why does the detector see a bird in this box? The target is the score of one box, before boxes are merged.

python examples/box_of_a_detector.py [FOLDER]
"""

import sys
from pathlib import Path

import torch

import dprotonet as dp  # before torchvision, which it lets import beside any build of torch

from torchvision.models.detection import FCOS  # isort: skip
from torchvision.models.detection.anchor_utils import AnchorGenerator  # isort: skip
from torchvision.utils import draw_bounding_boxes  # isort: skip

out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/detection")
torch.manual_seed(0)
trunk = dp.classifier("timm:tf_efficientnet_lite0:packaged").module
backbone = torch.nn.Sequential(trunk.conv_stem, trunk.bn1, trunk.blocks, torch.nn.Conv2d(320, 128, 1))
backbone.out_channels = 128
one_box = AnchorGenerator(((32,),), ((1.0,),))  # from each place of the last map
detector = FCOS(backbone, 2, anchor_generator=one_box, min_size=224, max_size=224).eval()
samples = [dp.Birds(species=4, per_species=6)[index] for index in range(24)]
outlines = [sample.truth.nonzero().flip(1).float() for sample in samples]
truth = [{"boxes": torch.cat([at.amin(0), at.amax(0)])[None], "labels": torch.tensor([1])} for at in outlines]
with torch.no_grad():
    images, truth = detector.transform([sample.image / 255 for sample in samples], truth)
    features = detector.backbone(images.tensors)
    anchors = detector.anchor_generator(images, [features])
adam = torch.optim.Adam(detector.head.parameters(), lr=1e-3)
for _ in range(60):  # the heads learn where birds are; put your own detector here
    adam.zero_grad()
    sum(detector.compute_loss(truth, detector.head([features]), anchors, [49]).values()).backward()
    adam.step()

sample = dp.Birds(species=4, per_species=1, split="test")[2]
images, _ = detector.transform([sample.image / 255])  # as the detector wants its images
features = detector.backbone(images.tensors)
answer = detector.head([features])
best = int(answer["cls_logits"][0, :, 1].argmax())
anchor = detector.anchor_generator(images, [features])[0][best : best + 1]
box = detector.box_coder.decode(answer["bbox_regression"][0, best : best + 1], anchor).round()


def score(seen: torch.Tensor) -> torch.Tensor:
    return detector.head([detector.backbone(seen)])["cls_logits"][:, best, 1]


shown = draw_bounding_boxes(sample.image, box.detach(), colors="white", width=3)
(explanation,) = dp.MDM(detector).explain(images.tensors, score)
explanation.save(out, image=shown)
print(f"box {box[0].int().tolist()}, score {score(images.tensors).sigmoid().item():.2f},", explanation.box())
