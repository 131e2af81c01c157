"""JSON from files: one kind of error for all that is none, and nothing that is written again otherwise."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprotonet.files import json_of

WHOLE = st.integers(-(2**63) + 1, 2**63 - 1)
VALUES = st.recursive(
    st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(deadline=None)
@given(VALUES, st.booleans())
def test_what_was_written_is_read(value: object, plain: bool) -> None:
    text = json.dumps(value, ensure_ascii=plain)
    assert json_of(text) == json_of(text.encode()) == value


@settings(deadline=None)
@given(st.binary(max_size=40) | st.text(max_size=40))
def test_nothing_but_value_errors(text: bytes | str) -> None:
    try:
        json_of(text)
    except ValueError:
        return


@pytest.mark.parametrize(
    "text",
    [
        *("[" * 100_000, '{"a":' * 100_000, "1e400", "-1e400", str(2**63), str(-(2**63)), "9" * 5000),
        *('"\\ud800"', '{"\\udfff": 1}', "٣", '"a', "", b"\xff"),
    ],
    ids=lambda text: repr(text[:12]),
)
def test_what_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 – whatever the words, this kind and no other
        json_of(text)


def test_numbers_that_are_not_finite_are_left_to_the_reader() -> None:
    """Files of earlier versions have them where an average of nothing stands."""
    assert math.isnan(json_of("[NaN]")[0])
    assert json_of('"\\ud83d\\ude00"') == "😀"
