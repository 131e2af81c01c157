"""Killed at any change of a file or at any moment, and gone on with: as if it had never been killed.

`make torture` does the same more often, with another seed each time.
"""

import os
import random
from pathlib import Path

import pytest
from tests.torture.kills import changes_of, killed_at_change, spread
from tests.torture.subjects import Subject, subjects
from tests.torture.torture import Attack, moment

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")

KILLS = {"train frozen": 6, "train joint": 5, "compare": 3, "benchmark": 3, "predict": 4, "feature cache": 3}


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    return {subject.name: subject for subject in subjects(tmp_path_factory.mktemp("material"))}


@pytest.mark.parametrize("name", KILLS)
def test_killed_at_changes_of_files(name: str, known: dict[str, Subject], tmp_path: Path) -> None:
    generator, attack = random.Random(name), Attack(known[name], tmp_path / "work")
    attack.prepare()
    for number in spread(generator, attack.outcome.changes, KILLS[name] - 1):
        attack.at_changes(number)
    last = attack.outcome.changes - 1
    attack.at_changes(generator.randrange(last), 1)  # and once more, when it has hardly gone on
    assert attack.outcome.failures == []
    assert attack.outcome.at_a_change >= KILLS[name]


@pytest.mark.parametrize("name", ["train frozen", "predict"])
def test_killed_at_a_moment(name: str, known: dict[str, Subject], tmp_path: Path) -> None:
    generator, attack = random.Random(name), Attack(known[name], tmp_path / "work")
    attack.prepare()
    for _ in range(2):
        attack.at_moment(moment(generator, attack))
    assert attack.outcome.failures == []


def test_a_work_that_does_not_survive_is_found_out(tmp_path: Path) -> None:
    """Two files that belong together, written in place: the attack must see that they came apart."""

    def work(place: Path) -> None:
        done = place / "done"
        number = int(done.read_text()) if done.exists() else 0
        done.write_text(str(number + 1))
        if not (place / "result").exists():
            (place / "result").write_text(f"made in run {number}")

    def result(place: Path) -> dict[str, str]:
        return {"result": (place / "result").read_text()}

    attack = Attack(Subject("fragile", work, result), tmp_path / "work")
    attack.prepare()
    assert attack.outcome.changes == 2
    attack.at_changes(0)
    assert attack.outcome.failures == []
    attack.at_changes(1)
    assert attack.outcome.failures == ["before change 1 of 2: other result; left []"]


def test_changes_are_counted_and_the_kill_comes_before_one(tmp_path: Path) -> None:
    def work(place: Path) -> None:
        (place / "a").write_text("1")
        (place / "a").read_text()
        (place / "a").rename(place / "b")
        (place / "folder").mkdir()

    assert changes_of(work, tmp_path) == 3
    for number, expected in enumerate([[], ["a"], ["b"]]):
        place = tmp_path / str(number)
        place.mkdir()
        assert killed_at_change(work, place, number)
        assert sorted(path.name for path in place.iterdir()) == expected
    place = tmp_path / "3"
    place.mkdir()
    assert not killed_at_change(work, place, 3)
    assert sorted(path.name for path in place.iterdir()) == ["b", "folder"]
