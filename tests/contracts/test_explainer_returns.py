"""Every explainer of the table reads every kind of answer, and gives the map of the plain tensor."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.interpretation.explainers import EXPLAINERS, ExplainerEntry

SIDES = 24, 32


class Small(nn.Module):
    """Three classes, a feature map that is found, and an answer in whatever `pack` makes of it."""

    def __init__(self, pack: Callable[[Tensor], Any] = lambda logits: logits, classes: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3, stride=4, padding=1), nn.ReLU())
        self.head, self.pack = nn.Linear(6, classes), pack
        self.eval()

    def forward(self, images: Tensor) -> Any:
        return self.pack(self.head(self.features(images).mean(dim=(2, 3))))


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
ENTRIES = {
    name: entry for name, entry in EXPLAINERS.items() if entry.installed and "prototypes" not in entry.needs
}
IMAGES = torch.rand(1, 3, *SIDES, generator=torch.Generator().manual_seed(1))


def mapped(entry: ExplainerEntry, model: Any, images: Any = IMAGES, target: Any = 1) -> np.ndarray:
    try:
        return entry.make(model)(images, target)
    except UserError as error:
        if "transformer" in str(error) or "attention" in str(error):
            pytest.skip(f"for other networks: {error}")
        raise


@pytest.fixture(scope="module")
def plain() -> dict[str, np.ndarray]:
    """Maps of the plain tensor, each made once."""
    return {}


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
def test_the_answer_is_found(name: str, pack: Callable[[Tensor], Any], plain: dict[str, np.ndarray]) -> None:
    if name not in plain:
        plain[name] = mapped(ENTRIES[name], Small())
    np.testing.assert_allclose(mapped(ENTRIES[name], Small(pack)), plain[name], atol=1e-5)


@pytest.mark.parametrize("name", ENTRIES)
def test_one_number_per_image_is_binary(name: str) -> None:
    squeezed = mapped(ENTRIES[name], Small(lambda logits: logits[:, 0], classes=1))
    np.testing.assert_allclose(squeezed, mapped(ENTRIES[name], Small(classes=1)), atol=1e-5)


@pytest.mark.parametrize("name", ENTRIES)
def test_images_as_people_have_them(name: str) -> None:
    pixels = (IMAGES[0] * 255).round().byte().movedim(0, -1).numpy()
    tensor = torch.from_numpy(pixels).movedim(-1, 0).float() / 255
    wanted = mapped(ENTRIES[name], Small(), tensor)
    assert wanted.shape == (1, *SIDES)  # one image without its batch, and not square
    for given in (pixels, Image.fromarray(pixels), pixels.astype(np.uint16) * 257):
        np.testing.assert_allclose(mapped(ENTRIES[name], Small(), given), wanted, atol=1e-5)


@pytest.mark.parametrize("name", ENTRIES)
def test_a_plain_function_is_explained_or_refused_in_words(name: str) -> None:
    network = Small()
    said = ""
    try:
        shape = ENTRIES[name].make(lambda images: network(images))(IMAGES, 1).shape
    except UserError as error:
        said = str(error)
    assert any(word in said for word in ("module", "transformer", "layer")) if said else shape == (1, *SIDES)


@pytest.mark.parametrize("name", ENTRIES)
def test_a_map_of_scores_is_refused_in_words(name: str) -> None:
    with pytest.raises(UserError):
        ENTRIES[name].make(nn.Conv2d(3, 2, 3))(IMAGES, 1)
