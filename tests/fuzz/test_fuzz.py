"""A few inputs of `make fuzz` in every run of the tests, and the harness on defects that are planted."""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.fuzz.campaign import Campaign, Tally
from tests.fuzz.target import REFUSALS, Case, drawn
from tests.fuzz.targets import SHARES, opener
from tests.fuzz.worker import Limits

from dprotonet.data.image_memory import VARIABLE
from dprotonet.errors import UserError

FEW = {"images": 150, "dicom": 80, "settings": 60, "tables": 50, "weights": 40, "run files": 60}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FEW)
def test_whatever_comes_is_read_or_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "400")
    target, seen = opener(name)(tmp_path / "work"), set()
    for number in range(FEW[name]):
        case = drawn(target, name, 1, number)
        try:
            target.feed(case)
            seen.add("accepted")
        except REFUSALS as error:
            seen.add("refused" if f"{error}" else "refused without a word")
    assert list(target.left()) == []
    assert seen == {"accepted", "refused"}


def test_an_input_has_a_number(tmp_path: Path) -> None:
    target = opener("images")(tmp_path)
    assert drawn(target, "images", 3, 7) == drawn(target, "images", 3, 7)
    assert len({drawn(target, "images", 3, number).content for number in range(20)}) == 20


def test_every_target_has_a_share() -> None:
    assert sum(SHARES.values()) == pytest.approx(1)


class Planted:
    """Some inputs show a defect; with the seed of the test each of them does."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def draw(self, generator: random.Random) -> Case:
        kinds = ("fine", "refused", "raises", "dies", "hangs", "sleeps", "takes", "leaves")
        kind = generator.choices(kinds, (20, 10, 1, 1, 1, 0.4, 1, 1))[0]
        return Case(kind, b"")

    def feed(self, case: Case) -> None:
        if case.kind == "refused":
            raise UserError("no")
        if case.kind == "raises":
            raise KeyError("planted")
        if case.kind == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        if case.kind == "hangs":
            while True:
                pass
        if case.kind == "sleeps":
            time.sleep(60)
        if case.kind == "takes":
            bytearray(10**12)  # more than a large process that was forked may have left free
        if case.kind == "leaves":
            (self.place / "left").touch()

    def left(self) -> Iterable[str]:
        names = [path.name for path in self.place.iterdir()]
        (self.place / "left").unlink(missing_ok=True)
        return names


@pytest.mark.skipif(sys.platform != "linux", reason="memory is watched through /proc")
def test_planted_defects_are_found_and_a_campaign_goes_on(tmp_path: Path) -> None:
    limits, state = Limits(seconds=0.2, megabytes=200), tmp_path / "state.json"

    def campaign() -> Campaign:
        return Campaign(
            {"planted": Planted}, tmp_path / "work", seed=37, limits=limits, patience=4, state=state
        )

    campaign().run({"planted": 20})
    second = campaign()
    assert second.tallies["planted"].inputs == 20
    second.run({"planted": 60})
    tally = second.tallies["planted"]
    assert tally.inputs == 60
    found = " ".join(tally.found)
    for sign in ("KeyError", "SIGSEGV", "more than 0.2 s", "hung", "MemoryError", "left behind: left"):
        assert sign in found
    assert tally == Tally.from_json(json.loads(state.read_text())["targets"]["planted"])
    counts = tally.counts
    assert sum(sum(kind.values()) for kind in counts.values()) == 60
    assert set(counts["fine"]) == {"accepted"}
    assert set(counts["refused"]) == {"refused"}
