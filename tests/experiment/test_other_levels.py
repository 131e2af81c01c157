"""familiarity.json that names other maps of the backbone than its tensors are of."""

import pytest
import torch

from dprotonet.errors import UserError
from dprotonet.experiment.runs.known_features import KnownFeatures
from dprotonet.inference.feature_spread import FeatureSpread


def test_levels_of_another_width() -> None:
    known = torch.rand(30, 5, generator=torch.Generator().manual_seed(0))
    spread = FeatureSpread.fit(known, (2, 3)).with_limits(torch.ones(2))
    features = KnownFeatures((0,), "", "", 0.1, 30, spread)
    assert features.strangeness(known).shape == (30, 2)
    with pytest.raises(UserError, match="other levels"):
        features.strangeness(torch.rand(30, 6))
