"""The rivals run in silence, and grad-cam is left as it was."""

import sys
import threading

import pytest
import torch
from tests.interpretation.conftest import Net

from dprotonet.interpretation.cam import CAM, METHODS
from dprotonet.interpretation.nodes import ClassNode

IMAGES = torch.rand(2, 3, 24, 24, generator=torch.Generator().manual_seed(0))
BARRED = ["scorecam", "ablationcam"]


def rivals(model: Net, name: str) -> torch.Tensor:
    return torch.stack(
        [item.raw for item in CAM(model, name, batch=4).explain(IMAGES, ClassNode(model, [0, 3]))]
    )


@pytest.mark.parametrize("name", BARRED)
def test_the_package_itself_shows_bars_and_we_do_not(
    name: str, model: Net, capfd: pytest.CaptureFixture[str]
) -> None:
    found = rivals(model, name)
    assert capfd.readouterr() == ("", "")
    package = sys.modules["pytorch_grad_cam"]
    loud = getattr(package, METHODS[name])(model=model, target_layers=[model.features])
    targets = [lambda scores: scores[0], lambda scores: scores[3]]
    expected = torch.cat(
        [
            torch.from_numpy(loud(input_tensor=image.unsqueeze(0), targets=[target]))
            for image, target in zip(IMAGES, targets, strict=True)
        ]
    )
    assert "100%" in capfd.readouterr().err  # the bars are still there for whoever wants them
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("name", BARRED)
def test_two_threads_do_not_meet(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Ablation-CAM's default layer, which holds the map at work, is one for all of them."""
    models, found = [Net().eval() for _ in range(4)], {}
    expected = rivals(Net().eval(), name)

    def explain(number: int) -> None:
        found[number] = rivals(models[number], name)

    threads = [threading.Thread(target=explain, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(torch.allclose(maps, expected, atol=1e-5) for maps in found.values())
    assert capfd.readouterr().err == ""
