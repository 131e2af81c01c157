"""familiarity.json that names other maps of the backbone than its tensors are of."""

import pytest
import torch

from dprotonet.encoder.backbone import load_backbone
from dprotonet.errors import UserError
from dprotonet.experiment.runs.known_features import KnownFeatures, seen_by
from dprotonet.inference.feature_spread import FeatureSpread


def test_levels_of_another_width() -> None:
    known = torch.rand(30, 5, generator=torch.Generator().manual_seed(0))
    spread = FeatureSpread.fit(known, (2, 3)).with_limits(torch.ones(2))
    features = KnownFeatures((0,), "", "", 0.1, 30, spread)
    assert features.strangeness(known).shape == (30, 2)
    with pytest.raises(UserError, match="other levels"):
        features.strangeness(torch.rand(30, 6))


@pytest.mark.parametrize("trunk", ["timm:test_resnet:none", "timm:vgg11:none"])
def test_a_map_that_the_backbone_does_not_have(trunk: str) -> None:
    """timm's own AssertionError; a VGG left it out and failed later."""
    spread = FeatureSpread.fit(torch.rand(30, 5), (2, 3)).with_limits(torch.ones(2))
    backbone = load_backbone(trunk, image_size=64)
    with pytest.raises(UserError, match=r"other levels.*3000"):
        seen_by(backbone, torch.rand(1, 3, 64, 64), KnownFeatures((3000,), "", "", 0.1, 30, spread))
