"""Convolutions take over the normalisation behind them: same values, only where it is right."""

import threading
from collections.abc import Callable

import pytest
import timm
import torch
from torch import Tensor, nn

from dprotonet.interpretation.borrowed import borrowed
from dprotonet.interpretation.folding import Folding, folded, folded_weights, seen_pairs
from dprotonet.interpretation.mdm import MDM, preset
from dprotonet.interpretation.nodes import ModuleNode

FAST = preset("fast", iterations=4, sizes=(5, 7))


def lively(model: nn.Module) -> nn.Module:
    """Statistics and factors that matter, as after training."""
    draw = torch.Generator().manual_seed(3)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for values, low, high in (
                (module.running_mean, -0.5, 0.5),
                (module.running_var, 0.5, 2),
                (module.weight, 0.5, 1.5),
                (module.bias, -0.5, 0.5),
            ):
                if values is not None:
                    values.data.uniform_(low, high, generator=draw)
    return model.eval()


@pytest.fixture
def images() -> Tensor:
    return torch.randn(2, 3, 24, 24, generator=torch.Generator().manual_seed(1))


def chain(**options: object) -> nn.Sequential:
    convolution = nn.Conv2d(3, 8, 3, padding=1, **options)  # type: ignore[arg-type]
    return nn.Sequential(
        convolution, nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )


def pairs_in(model: nn.Module, images: Tensor) -> int:
    with torch.no_grad(), seen_pairs(model) as pairs:
        model(images)
    return len(pairs)


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"padding_mode": "reflect", "stride": 2}])
@torch.no_grad()
def test_values_are_the_same_and_the_normalisation_is_not_computed(
    images: Tensor, options: dict[str, object]
) -> None:
    model = lively(chain(**options))
    usual = model(images)
    with seen_pairs(model) as pairs:
        model(images)
    assert [(pair.convolution, pair.normalisation) for pair in pairs] == [(model[0], model[1])]
    with folded(pairs):
        model[1].running_mean += 100  # nobody reads it now
        torch.testing.assert_close(model(images), usual)
    assert not torch.allclose(model(images), usual)


def test_groups_and_a_normalisation_without_factors() -> None:
    convolution, normalisation = nn.Conv2d(6, 4, 3, groups=2), nn.BatchNorm2d(4, affine=False)
    lively(normalisation)
    weight, bias = folded_weights(convolution, normalisation)
    images = torch.randn(2, 6, 9, 9)
    torch.testing.assert_close(
        convolution._conv_forward(images, weight, bias), normalisation(convolution(images))
    )


def test_every_normalisation_of_the_usual_backbone_is_folded() -> None:
    model = lively(timm.create_model("efficientnet_lite0", num_classes=4))
    count = sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())
    assert pairs_in(model, torch.randn(1, 3, 64, 64)) == count == 49


class Branching(nn.Module):
    """Something else reads what the convolution gives."""

    def __init__(self, read: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.convolution, self.normalisation, self.read = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), read

    def forward(self, images: Tensor) -> Tensor:
        values = self.convolution(images)
        return (self.normalisation(values) + self.read(values)).mean(dim=(-2, -1))


class Sharing(nn.Module):
    """One convolution, two normalisations, as heads that share their weights over levels."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.one, self.other = nn.BatchNorm2d(8), nn.BatchNorm2d(8)

    def forward(self, images: Tensor) -> Tensor:
        found = self.one(self.convolution(images)) + self.other(self.convolution(2 * images))
        return found.mean(dim=(-2, -1))


@pytest.mark.parametrize(
    "model",
    [
        Branching(lambda values: values),
        Branching(lambda values: values.detach().square()),
        Branching(lambda values: values.flatten(1).mean().expand_as(values)),
        Sharing(),
    ],
)
def test_what_others_read_too_is_left_alone(model: nn.Module, images: Tensor) -> None:
    assert pairs_in(lively(model), images) == 0


def test_a_normalisation_that_learns_or_has_no_statistics_is_left_alone(images: Tensor) -> None:
    training, without = chain().train(), chain()
    without[1] = nn.BatchNorm2d(8, track_running_stats=False)
    assert pairs_in(training, images) == pairs_in(without.eval(), images) == 0


def test_a_convolution_that_somebody_listens_to_is_left_alone(images: Tensor) -> None:
    model = lively(chain())
    model[0].register_forward_hook(lambda *_: None)
    assert pairs_in(model, images) == 0


def test_a_watched_convolution_has_its_own_values(images: Tensor) -> None:
    """Its channel before the normalisation, which folding would move."""
    model = lively(chain())
    task = MDM(preset=FAST).task(images, ModuleNode(model, "0", channel=2))
    task.folding = Folding(model)
    with torch.no_grad():
        expected = model[0](images)[:, 2].mean(dim=(-2, -1))
        with task.folding:
            for _ in range(2):
                torch.testing.assert_close(task.activations(images).flatten(), expected)


@torch.no_grad()
def test_another_thread_gets_the_network_as_it_is(images: Tensor) -> None:
    model = lively(chain())
    usual, heard = model(images), []
    with seen_pairs(model) as pairs:
        model(images)
    with folded(pairs):
        model[1].running_mean += 1
        thread = threading.Thread(target=lambda: heard.append(model(images).detach()))
        thread.start()
        thread.join()
        assert torch.allclose(model(images), usual, atol=1e-5)
    model_now = model(images)
    assert torch.equal(heard[0], model_now)
    assert not torch.allclose(model_now, usual)


def test_nothing_is_left_behind_after_an_error(images: Tensor) -> None:
    model = lively(chain())

    def stop(_step: object) -> None:
        assert any("forward" in vars(module) for module in model.modules())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        MDM(model, preset=FAST).explain(images, on_step=stop)
    assert not any("forward" in vars(module) for module in model.modules())


def test_maps_are_those_of_the_network_as_it_is(images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    model = lively(chain())
    short = MDM(model, preset=FAST).explain(images)
    monkeypatch.setattr(Folding, "through", lambda _self, ask: ask())
    for found, usual in zip(short, MDM(model, preset=FAST).explain(images), strict=True):
        torch.testing.assert_close(found.heatmap, usual.heatmap, atol=1e-3, rtol=0)
        assert found.passes == usual.passes


def test_only_the_first_pass_is_looked_at(images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    model, looked = lively(chain()), []
    import dprotonet.interpretation.folding as room

    usual = room.seen_pairs
    monkeypatch.setattr(room, "seen_pairs", lambda model: looked.append(model) or usual(model))
    with borrowed(model), Folding(model) as folding:
        for _ in range(3):
            folding.through(lambda: model(images))
    assert looked == [model]


@torch.no_grad()
def test_entered_again_it_folds_at_once(images: Tensor) -> None:
    model = lively(chain())
    folding = Folding(model)
    with folding:
        folding.through(lambda: model(images))
    assert not any("forward" in vars(module) for module in model.modules())
    with folding:
        assert all("forward" in vars(module) for module in model[:2])
        calls: list[int] = []
        folding.through(lambda: calls.append(1))
        assert calls == [1]
