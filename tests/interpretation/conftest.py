"""The small network that tests of explainers share."""

import pytest
import torch
from torch import Tensor, nn


class Net(nn.Module):
    """Two strided convolutions, BatchNorm and a head whose logits are far apart."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 12, 3, stride=2, padding=1),
        )
        self.head = nn.Linear(12, classes)

    def forward(self, images: Tensor) -> Tensor:
        return 20 * self.head(self.features(images).relu().mean(dim=(2, 3)))


@pytest.fixture
def model() -> Net:
    return Net().eval()
