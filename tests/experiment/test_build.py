"""Words of a config become objects; a word that nobody knows is refused."""

from dataclasses import replace
from typing import get_args, get_type_hints

import pytest

from dprotonet.config import NetworkConfig
from dprotonet.errors import UserError
from dprotonet.experiment.build.inference import SIMILARITIES, build_similarity
from dprotonet.inference.similarity import LogSimilarity


def test_every_similarity_of_the_config_can_be_built() -> None:
    assert get_args(get_type_hints(NetworkConfig)["similarity"]) == tuple(SIMILARITIES)
    built = build_similarity(NetworkConfig(epsilon=0.5))
    assert isinstance(built, LogSimilarity)
    assert built.epsilon == 0.5


def test_an_unknown_similarity_is_no_cosine() -> None:
    with pytest.raises(UserError, match="unknown similarity 'mine'; known: log, cosine"):
        build_similarity(replace(NetworkConfig(), similarity="mine"))  # type: ignore[arg-type]
