"""Every explainer by its name, and the network that it explains."""

import pytest

from contracts.explainer_subjects import NAMES, Net


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    wanted: str = request.param
    return wanted


@pytest.fixture
def model() -> Net:
    return Net()
