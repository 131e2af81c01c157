"""Curves and sweeps of several methods: means, bands, legends, missing values, and what does not fit."""

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.text import Text
from PIL import Image, ImageColor
from torch import Tensor

from dprotonet.figures import faithfulness_curves, overlap_sweep
from dprotonet.figures.method_lines import COLOURS, FIRST, GREYS, legend_lines, mean_of, styles_of
from dprotonet.figures.overlap_sweep import MEASURES
from dprotonet.figures.style import PAPER

NAN = float("nan")
CONTROLS = ("random", "centre", "all but one")
TWELVE = (*(f"method {k}" for k in range(12)), *CONTROLS)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text of a chart that is drawn during the test."""
    words: list[str] = []
    draw = Text.draw

    def spy(self: Text, *given: object, **options: object) -> None:
        if self.get_visible() and self.get_text():
            words.append(self.get_text().strip())
        draw(self, *given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Text, "draw", spy)
    return words


def curves(count: int = 4, *, seed: int = 0, steps: int = 5) -> Tensor:
    return torch.rand(count, steps + 1, generator=torch.Generator().manual_seed(seed))


def overlaps(count: int = 3, *, seed: int = 0) -> dict[str, Tensor]:
    return {name: curves(count, seed=seed + place, steps=98) for place, name in enumerate(MEASURES)}


def share_of(image: Image.Image, colour: str) -> float:
    return float((np.asarray(image) == ImageColor.getrgb(colour)).all(axis=-1).mean())


def test_mean_band_and_area_against_literal_loops() -> None:
    rows = curves(7)
    rows[2] = NAN
    rows[4, 3] = NAN
    kept = [[float(value) for value in row] for number, row in enumerate(rows) if number not in (2, 4)]
    found = mean_of(rows)
    assert found.count == 5
    area = 0.0
    for step in range(6):
        column = [row[step] for row in kept]
        mean = sum(column) / 5
        spread = (sum((value - mean) ** 2 for value in column) / 4) ** 0.5
        assert float(found.values[step]) == pytest.approx(mean, abs=1e-12)
        assert float(found.margin[step]) == pytest.approx(1.96 * spread / 5**0.5, abs=1e-12)
        area += mean / 5 if 0 < step < 5 else mean / 10
    assert found.area == pytest.approx(area, abs=1e-12)


def test_a_single_image_has_no_band_and_none_has_no_mean() -> None:
    assert not mean_of(curves(1)).margin.any()
    assert mean_of(curves(0)).count == mean_of(curves(2) * NAN).count == 0


def test_fifteen_methods_look_different_and_the_first_stands_out() -> None:
    styles = styles_of(TWELVE)
    assert list(styles) == list(TWELVE)
    assert len({(style.colour, style.dash) for style in styles.values()}) == len(TWELVE)
    first, *others = styles.values()
    assert first.dash == ()
    assert all(first.width > style.width for style in others)
    assert {styles[name].colour for name in CONTROLS} == set(GREYS)
    assert {style.colour for name, style in styles.items() if name not in CONTROLS} == {FIRST, *COLOURS}


def test_controls_are_known_in_any_spelling() -> None:
    for name in ("Random", "centre-gaussian", "all_but_one", "fake"):
        assert styles_of(["mdm", name])[name].colour in GREYS
    assert styles_of(["mdm", "randomised"])["randomised"].colour in COLOURS


def test_both_panels_say_what_they_show(shown: list[str]) -> None:
    deletion = torch.tensor([[1.0, 0.5, 0.0], [1.0, 0.1, 0.0]])
    image = faithfulness_curves({"mdm": deletion}, {"mdm": 1 - deletion / 2}, title="$5 and 20 birds")
    assert {"$5 and 20 birds", "Deletion", "lower is better", "Insertion", "higher is better"} <= set(shown)
    assert {"mdm 0.400", "mdm 0.800", "0 %", "100 %"} <= set(shown)
    assert share_of(image, FIRST) > 0.001


@pytest.mark.parametrize("count", [1, 4, 15])
def test_every_method_has_its_line_and_the_size_bears_it(count: int) -> None:
    given = {name: curves(seed=place) for place, name in enumerate(TWELVE[:count])}
    image = faithfulness_curves(given, given)
    assert 1400 < image.width < 2000
    assert 600 < image.height < 1300
    for style in styles_of(given).values():
        assert share_of(image, style.colour) > 1e-5, style
    assert share_of(image, PAPER) > 0.4


def test_the_legend_does_not_lie_on_the_panels() -> None:
    given = {name: curves(seed=place) for place, name in enumerate(TWELVE)}
    boxes: list[tuple[float, float]] = []
    draw = Axes.draw

    def spy(self: Axes, renderer: object) -> None:
        draw(self, renderer)  # type: ignore[arg-type]
        legend = self.get_legend()
        assert legend is not None
        axis = self.xaxis.get_tightbbox(renderer)  # type: ignore[arg-type]
        assert axis is not None
        boxes.append((legend.get_window_extent().y1, axis.y0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Axes, "draw", spy)
        faithfulness_curves(given, given)
    assert len(boxes) == 2
    assert all(legend_top <= axis_bottom for legend_top, axis_bottom in boxes)


def test_rows_with_nan_are_left_out_and_counted(shown: list[str]) -> None:
    whole = curves(3)
    holed = torch.cat([whole[:2], whole.new_full((1, 6), NAN)])
    faithfulness_curves({"mdm": whole, "cam": holed}, {"mdm": whole, "cam": whole[:2]})
    labels = [text for text in shown if text.startswith("cam ")]
    assert labels == [f"cam {mean_of(whole[:2]).area:.3f} (2 of 3 images)"] * 2


def test_a_method_without_values_says_so(shown: list[str]) -> None:
    given = {"mdm": curves(), "rise": curves() * NAN}
    faithfulness_curves(given, given)
    assert shown.count("rise: no values") == 2
    assert "no values" not in shown
    faithfulness_curves({"mdm": curves(), "rise": curves(0)}, given)
    assert shown.count("rise: no values") == 4


def test_a_panel_without_any_values_says_so(shown: list[str]) -> None:
    nothing = {"mdm": curves() * NAN, "rise": curves(0)}
    assert faithfulness_curves(nothing, {name: curves() for name in nothing}).width
    assert shown.count("no values") == 1
    overlap_sweep({"mdm": {name: rows * NAN for name, rows in overlaps().items()}})
    assert shown.count("no values") == 1 + len(MEASURES)


def test_small_probabilities_are_not_pressed_flat(shown: list[str]) -> None:
    low = {"mdm": 0.3 * curves()}
    faithfulness_curves(low, low)
    assert "1.0" not in shown
    faithfulness_curves(low, {"mdm": torch.ones(2, 3)})
    assert "1.0" in shown


def test_the_order_of_insertion_does_not_change_the_colours() -> None:
    given = {"a": curves(seed=1), "b": curves(seed=2)}
    turned = dict(reversed(given.items()))
    assert faithfulness_curves(given, turned).tobytes() == faithfulness_curves(given, given).tobytes()
    assert faithfulness_curves(turned, given).tobytes() != faithfulness_curves(given, given).tobytes()


@pytest.mark.parametrize(
    ("deletion", "insertion", "message"),
    [
        ({}, {}, "at least one method"),
        ({"a": curves()}, {"b": curves()}, r"deletion has curves of \['a'\], insertion of \['b'\]"),
        (
            {"a": curves()[0]},
            {"a": curves()},
            r"deletion of 'a' has shape \(6,\); it must be \(N, 2 or more\)",
        ),
        ({"a": curves()}, {"a": curves()[:, :1]}, r"insertion of 'a' has shape \(4, 1\)"),
        ({"a": curves()}, {"a": 100 * curves()}, r"insertion of 'a' reaches from .* it must be in \[0, 1\]"),
    ],
)
def test_curves_that_do_not_fit_are_refused(
    deletion: dict[str, Tensor], insertion: dict[str, Tensor], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        faithfulness_curves(deletion, insertion)


def test_four_panels_and_one_legend(shown: list[str]) -> None:
    given = {name: overlaps(seed=place) for place, name in enumerate(TWELVE)}
    image = overlap_sweep(given, mark=0.2, title="birds")
    for text in ("DICE", "IOU", "PPV", "Sensitivity", *TWELVE, "birds", "top 20 %, as in the table"):
        assert shown.count(text) == 1, text
    for style in styles_of(given).values():
        assert share_of(image, style.colour) > 1e-5, style
    assert 1400 < image.width < 2000


def test_the_mark_is_drawn_in_every_panel_at_its_share() -> None:
    given = {"mdm": {name: torch.zeros(1, 99) for name in MEASURES}}
    plain, *marked = (overlap_sweep(given, mark=mark) for mark in (None, 0.2, 0.7))
    assert plain.tobytes() != marked[0].tobytes() != marked[1].tobytes()
    assert marked[0].size == marked[1].size
    changed = (np.asarray(marked[0]) != np.asarray(marked[1])).any(axis=-1)
    columns = changed[: changed.shape[0] // 2].sum(axis=0) > changed.shape[0] // 4
    groups = np.flatnonzero(columns & ~np.roll(columns, 1))
    assert len(groups) == 4, "two panels side by side, each with the line at either place"
    assert groups[1] - groups[0] == pytest.approx(groups[3] - groups[2], abs=2)


def test_images_without_truth_are_left_out_of_the_sweep() -> None:
    whole = overlaps()
    holed = {name: torch.cat([rows, rows.new_full((2, 99), NAN)]) for name, rows in whole.items()}
    assert overlap_sweep({"mdm": holed}).tobytes() == overlap_sweep({"mdm": whole}).tobytes()


@pytest.mark.parametrize(
    ("given", "mark", "message"),
    [
        ({}, None, "at least one method"),
        (
            {"a": {"DICE": torch.zeros(1, 99)}},
            None,
            r"'a' has measures \['DICE'\]; IOU, PPV, sensitivity are",
        ),
        (
            {"a": overlaps() | {"PPV": torch.zeros(3, 98)}},
            None,
            r"PPV of 'a' has shape \(3, 98\); .* \(N, 99\)",
        ),
        ({"a": overlaps() | {"IOU": -torch.ones(3, 99)}}, None, r"IOU of 'a' reaches from -1 to -1"),
        ({"a": overlaps()}, 20, "mark is 20; it is a share of the pixels, between 0 and 1"),
    ],
)
def test_sweeps_that_do_not_fit_are_refused(
    given: dict[str, dict[str, Tensor]], mark: float | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        overlap_sweep(given, mark=mark)


def test_long_names_are_cut() -> None:
    [line] = legend_lines({"a method with a name " * 9: mean_of(curves())}, area=True)
    assert len(str(line.get_label())) < 40
    assert "…" in str(line.get_label())


def test_names_that_begin_alike_stay_apart() -> None:
    names = [f"file:a/long/folder/of/maps_{number}" for number in range(12)]
    labels = {str(line.get_label()) for line in legend_lines(dict.fromkeys(names, mean_of(curves())))}
    assert len(labels) == 12


def test_long_names_and_titles_leave_the_panels_their_room() -> None:
    names = [f"file:a/long/folder/of/maps_{number}" for number in range(12)]
    given = {name: curves(4 - place % 2, seed=place) for place, name in enumerate(names)}
    widths: list[tuple[float, float]] = []
    draw = Axes.draw

    def spy(self: Axes, renderer: object) -> None:
        draw(self, renderer)  # type: ignore[arg-type]
        legend = self.get_legend()
        assert legend is not None
        assert legend.get_window_extent().y0 >= 0, "cut off at the bottom"
        widths.append((self.get_window_extent().width, legend.get_window_extent().width))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Axes, "draw", spy)
        image = faithfulness_curves(given, given, title="a title that goes on and on " * 9)
    assert image.width < 2000
    assert all(panel > 650 and legend < panel for panel, legend in widths)
