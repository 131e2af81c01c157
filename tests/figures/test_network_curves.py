"""Curves of several networks: the line goes through every accuracy, and odd input is drawn or refused."""

import numpy as np
import pytest

from dprotonet.figures import AccuracyCurve, network_curves

CURVE = AccuracyCurve([1, 2, 3], [0.2, 0.4, 0.6], [2], [0.3], [0.5])


def test_the_line_goes_through_all_accuracies_in_order() -> None:
    places, values = CURVE.points()
    assert values == [0.2, 0.4, 0.3, 0.5, 0.6]
    assert places == sorted(places)
    assert 2 < places[2] < places[3] < 3
    assert CURVE.final == 0.6
    assert AccuracyCurve([1, 2], [0.2, 0.4], [2], [0.3]).final == 0.3  # no last-layer stage


@pytest.mark.parametrize(
    "curves",
    [
        {"one epoch": AccuracyCurve([1], [0.0])},
        {"all right": AccuracyCurve([1, 2], [1.0, 1.0], [2], [1.0], [1.0])},
        {f"a network with a very long name and $ number {n}": CURVE for n in range(9)},
    ],
)
def test_it_draws(curves: dict[str, AccuracyCurve]) -> None:
    pixels = np.asarray(network_curves(curves, title="Validation accuracy on $x_1"))
    assert pixels.shape[1] > 800
    assert pixels.std() > 5


def test_a_push_can_be_seen() -> None:
    without = CURVE._replace(pushes=(), after_push=(), after_last=())
    drawn = [np.asarray(network_curves({"a": curve}).resize((400, 200))) for curve in (CURVE, without)]
    assert (drawn[0] != drawn[1]).mean() > 0.01


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one network"):
        network_curves({})
    with pytest.raises(ValueError, match="at least one epoch"):
        network_curves({"a": AccuracyCurve([], [])})
