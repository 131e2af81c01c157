"""Boxes as masks, against a loop over pixels; and images that belong together."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprotonet.data.box import Box, disc, filled, whole
from dprotonet.data.duplicates import together
from dprotonet.data.scan import ImageFile
from dprotonet.data.stratified_split import stratified_split

SIZE = 9
edges = st.floats(0, SIZE, allow_nan=False)


@given(x=st.tuples(edges, edges), y=st.tuples(edges, edges))
@settings(max_examples=200, deadline=None)
def test_a_box_fills_the_pixels_whose_centres_it_holds(
    x: tuple[float, float], y: tuple[float, float]
) -> None:
    box = Box(min(x), min(y), max(x), max(y))
    mask = filled([box], SIZE)
    inside = {
        (row, column)
        for row, column in np.ndindex(SIZE, SIZE)
        if box.left <= column + 0.5 < box.right and box.top <= row + 0.5 < box.bottom
    }
    if inside:
        assert inside == set(map(tuple, mask.nonzero().tolist()))
    else:
        assert bool(mask.any()) != box.empty


def test_boxes_are_merged_and_empty_ones_leave_nothing() -> None:
    mask = filled([Box(0, 0, 2, 2), Box(1, 1, 3, 3), Box(5, 5, 5, 8), Box(math.nan, 0, 9, 9)], SIZE)
    assert int(mask.sum()) == 4 + 4 - 1


def test_a_box_moves_with_its_frame_and_is_cut_at_it() -> None:
    assert Box(10, 20, 30, 60).within(whole((100, 200)), 50) == (5, 5, 15, 15)
    assert Box(10, 20, 30, 60).within(Box(20, 20, 40, 40), 10) == (0, 0, 5, 10)
    assert Box(0, 0, 5, 5).within(Box(20, 20, 40, 40), 10).empty


def test_how_far_a_box_reaches_outside() -> None:
    assert Box(-3, 0, 101, 50).overhang((100, 50)) == 3
    assert Box(0, 0, 100, 52).overhang((100, 50)) == 2
    assert Box(1, 1, 99, 49).overhang((100, 50)) == 0


@pytest.mark.parametrize("place", [(0.0, 0.0), (4.5, 4.5), (9.0, 9.0), (3.2, 8.9)])
def test_a_disc_always_shows(place: tuple[float, float]) -> None:
    assert int(disc(*place, radius=0.1, size=SIZE).sum()) == 1
    assert int(disc(*place, radius=2, size=SIZE).sum()) > 1


# Together


def file(name: str, *, group: str = "", digest: str = "", kind: str = "a") -> ImageFile:
    return ImageFile(name, "train", kind, group=group, digest=digest or name)


def test_one_patient_equal_bytes_and_chains_of_both() -> None:
    files = [
        file("1", group="p"),
        file("2", group="q"),
        file("3", digest="same", group="p"),
        file("4"),
        file("5", digest="same", group="q"),
        file("6", group="r"),
    ]
    found = {frozenset(one.name for one in group) for group in together(files)}
    assert found == {frozenset("1235"), frozenset("4"), frozenset("6")}


@pytest.mark.parametrize("seed", range(5))
def test_a_share_never_tears_a_patient_apart(seed: int) -> None:
    files = [file(f"{i}", group=f"p{i // 3}", kind="ab"[i // 3 % 2]) for i in range(60)]
    aside = stratified_split(files, fraction=0.3, seed=(seed,)).files
    inside = {one.group for one in aside}
    assert 18 <= len(aside) <= 22
    assert not inside & {one.group for one in files if one not in aside}


def test_a_class_of_one_patient_cannot_be_shared() -> None:
    files = [file(f"{i}", group="p") for i in range(5)]
    share = stratified_split([*files, file("6", kind="b"), file("7", kind="b")], fraction=0.5, seed=(0,))
    assert share.short == {"a": 1}
    assert [one.class_name for one in share.files] == ["b"]
