"""When and where? Films and scans are volumes (channels, frames or slices, height, width), masked along all.

python examples/frames_and_slices.py [FOLDER]
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import dprotonet as dp

out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/volumes")
torch.manual_seed(0)


class Flash(nn.Module):
    """Is there a frame that is bright somewhere? Put your own network of frames or slices here."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv3d(3, 1, 5, padding=2), nn.ReLU(), nn.AvgPool3d(2))
        nn.init.constant_(self.features[0].weight, 1 / 375)
        nn.init.constant_(self.features[0].bias, -0.55)

    def forward(self, volumes: Tensor) -> Tensor:
        bright = 100 * self.features(volumes).mean(dim=(1, 2, 3, 4))
        return torch.stack([1 - bright, bright - 1], dim=1)


film = 0.4 * torch.rand(1, 3, 16, 64, 64)
film[0, :, 9:13, 20:36, 30:50] += 0.55  # what happens, in frames 9 to 12
(explanation,) = dp.MDM(Flash(), classes=["dark", "flash"]).explain(film, "flash")
explanation.save(out / "video")  # overlay.png shows frames side by side
print(explanation, explanation.cuboid(share=0.02))


def by_frame(frames: Tensor) -> Tensor:
    return frames.mean(dim=1).clamp_min(0.5).sum(dim=(1, 2))


frames = film[0].transpose(0, 1)  # a network of single images: each frame, or slice, is explained for itself
for number, found in enumerate(dp.MDM(by_frame).explain(frames[9:12], by_frame), 9):
    found.save(out / f"frame{number:02d}")
    print(number, found, f"hottest in {found.box(share=0.02)}")
