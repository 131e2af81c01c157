"""Every explainer reads every kind of answer and of image, and gives the map of the plain tensor."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.contracts.explainer_subjects import EXPLAINERS, NAMES, SIZE, Net, images, made
from torch import Tensor, nn

from dprotonet.errors import UserError

ASKED = [name for name in NAMES if name != "similarity"]  # which is given the network's parts, not its answer
MAPS: dict[str, np.ndarray] = {}  # of the plain tensor, each made once


@dataclass
class Answer:
    features: Tensor
    logits: Tensor


def of_hugging_face(logits: Tensor) -> Any:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    return outputs.ImageClassifierOutput(logits=logits, hidden_states=(logits.unsqueeze(1),))


PACKED: dict[str, Callable[[Tensor], Any]] = {
    "tuple": lambda logits: (logits,),
    "auxiliary head": lambda logits: (logits, -logits),
    "dict": lambda logits: {"aux": -logits, "logits": logits},
    "dataclass": lambda logits: Answer(logits[:, :1], logits),
    "Hugging Face": of_hugging_face,
}


class Packed(Net):
    def __init__(self, pack: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.pack = pack

    def forward(self, given: Tensor) -> Any:
        return self.pack(super().forward(given))


def mapped(name: str, model: nn.Module, given: Any = None, **settings: Any) -> np.ndarray:
    return made(name, model, **settings)(images(1) if given is None else given, 1)


def plain(name: str) -> np.ndarray:
    if name not in MAPS:
        MAPS[name] = mapped(name, Net())
    return MAPS[name]


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
def test_the_answer_is_found(name: str, pack: Callable[[Tensor], Any]) -> None:
    np.testing.assert_allclose(mapped(name, Packed(pack)), plain(name), atol=1e-4)


@pytest.mark.parametrize("name", ASKED)
def test_one_number_per_image_is_binary(name: str) -> None:
    column = mapped(name, Packed(lambda logits: logits[:, :1]), classes=())
    np.testing.assert_allclose(
        mapped(name, Packed(lambda logits: logits[:, 0]), classes=()), column, atol=1e-4
    )


@pytest.mark.parametrize("name", ASKED)
def test_images_as_people_have_them(name: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), dtype=np.uint8)
    tensor = torch.from_numpy(pixels).movedim(-1, 0).float() / 255
    wanted = mapped(name, Net(), tensor)
    assert wanted.shape == (1, *SIZE)  # one image without its batch, and not square
    for given in (pixels, Image.fromarray(pixels), pixels.astype(np.uint16) * 257):
        np.testing.assert_allclose(mapped(name, Net(), given), wanted, atol=1e-4)


@pytest.mark.parametrize("name", ASKED)
def test_one_channel(name: str) -> None:
    grey = np.random.default_rng(0).integers(0, 65536, SIZE, dtype=np.uint16)
    assert mapped(name, Net(channels=1), grey).shape == (1, *SIZE)


@pytest.mark.parametrize("name", ASKED)
def test_a_map_of_scores_is_refused_in_words(name: str) -> None:
    with pytest.raises(UserError):
        mapped(name, nn.Conv2d(3, 2, 3))


@pytest.mark.parametrize("name", [name for name in ASKED if name in EXPLAINERS])
def test_volumes_are_refused_in_words(name: str) -> None:
    with pytest.raises(UserError, match="MDM explains both"):
        mapped(name, Net(), torch.rand(1, 3, 4, *SIZE))
