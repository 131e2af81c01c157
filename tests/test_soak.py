"""What `make soak` says of growth: a leak has a slope, noise has none, and the process is seen as it is."""

import io
import json
import os
import random

import pytest
from scripts.soak_clients import Visit
from scripts.soak_samples import QUANTITIES, Watch, line, slopes

LOOKS = [{"hours": number / 100, **dict.fromkeys(QUANTITIES, 0.0)} for number in range(100)]


def test_a_line_through_points() -> None:
    assert line([0, 1, 2, 3], [1, 3, 5, 7]) == (2.0, 0.0)
    slope, error = line([0, 1, 2, 3, 4], [0, 1, 0, 1, 0])  # by hand: 0 and sqrt(1.2 / 3 / 10)
    assert (slope, error) == (0.0, pytest.approx(0.2))


def test_a_leak_is_seen_and_the_warm_up_is_not() -> None:
    chance = random.Random(0)
    for look in LOOKS:
        warming = 500 if look["hours"] < 0.2 else 0
        look |= {"resident": 700 - warming + chance.gauss(0, 5) + 40 * look["hours"], "handles": 9.0}
        look |= {"own": 500 + chance.gauss(0, 5)}
    found = slopes(LOOKS, 0.25)
    assert found["resident"]["slope"] == pytest.approx(40, abs=3 * found["resident"]["standard error"])
    assert found["resident"]["slope"] > 5 * found["resident"]["standard error"]
    assert abs(found["own"]["slope"]) < 3 * found["own"]["standard error"]
    assert (found["handles"]["slope"], found["handles"]["largest"]) == (0, 9)


def test_too_few_looks_are_no_slope() -> None:
    with pytest.raises(SystemExit, match="2 looks after the warm-up are too few"):
        slopes(LOOKS, 0.98)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="processes are looked at in /proc")
def test_a_look_at_this_process() -> None:
    stream = io.StringIO()
    watch = Watch(os.getpid(), stream, every=1000)
    watch.look()
    with open(os.devnull) as _:
        watch.look(answers=3)
        watch.look_if_due()  # is not
    before, after = map(json.loads, stream.getvalue().splitlines())
    assert after["handles"] == before["handles"] + 1
    assert after["answers"] == 3
    assert 0 < before["own"] < before["resident"]


def test_only_this_machine_is_visited() -> None:
    for address in ("http://192.0.2.1:80", "http://127.0.0.1"):
        with pytest.raises(SystemExit, match="only servers of this machine"):
            Visit(address, random.Random(0), [])
