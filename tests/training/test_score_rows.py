"""Scores in memory and on disk are the same numbers, and on disk nothing is left of them."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from tests.conftest import tiny_network, tiny_views

from dprotonet.errors import UserError
from dprotonet.training import score_rows
from dprotonet.training.score_rows import Room, ScoreRows
from dprotonet.training.scores import Scoring, score_views
from dprotonet.training.views import epoch_keys

SCORES = torch.randn(23, 7, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is too large for memory, and three rows are read at a time."""
    monkeypatch.setattr(score_rows, "IN_MEMORY", 0)
    monkeypatch.setattr(score_rows, "_BLOCK", 3 * 7 * 4)


def written(folder: Path) -> ScoreRows:
    rows = ScoreRows.empty(Room(23, 7, folder))
    for first in (10, 0):  # in any order
        rows.put(first, SCORES[first : first + 10 if first == 0 else 23])
    return rows


@pytest.mark.usefixtures("disk")
def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    rows = written(tmp_path)
    assert list(tmp_path.iterdir()) == []  # the file has no name
    chosen = torch.tensor([4, 22, 0, 4])
    for place in (5, slice(None), slice(3, 9, 2), chosen):
        assert torch.equal(rows[place], SCORES[place])
    kept = torch.tensor([True, False] * 3 + [True])
    assert torch.equal(rows.seen_by(kept)[chosen], SCORES[chosen][:, kept])


@pytest.mark.usefixtures("disk")
def test_blocks_are_all_rows_or_those_asked_for(tmp_path: Path) -> None:
    rows = written(tmp_path)
    for wanted in (None, torch.tensor([1, 2, 3, 9, 11, 20])):
        blocks = list(rows.blocks(wanted))
        assert max(len(numbers) for numbers, _ in blocks) == 3
        numbers = torch.cat([numbers for numbers, _ in blocks])
        assert numbers.tolist() == (list(range(23)) if wanted is None else wanted.tolist())
        assert torch.equal(torch.cat([block for _, block in blocks]), SCORES[numbers])


def test_few_scores_stay_in_memory(tmp_path: Path) -> None:
    rows = written(tmp_path / "nothing is written here")
    assert not (tmp_path / "nothing is written here").exists()
    assert torch.equal(rows[:], SCORES)


def test_a_disk_without_room_is_told_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dprotonet.training.score_rows.shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    room = Room(1_280_000, 10_000, tmp_path)
    with pytest.raises(UserError, match=r"1,280,000 images by 10,000 prototypes: they take 51.2 GB.*--cache"):
        ScoreRows.empty(room)
    assert list(tmp_path.iterdir()) == []


def test_the_last_layer_learns_from_the_same_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, views = tiny_network(), tiny_views()
    scoring, keys = Scoring(Accelerator(), tmp_path, batch=4), epoch_keys(views, epoch=1)
    plain = score_views(network, views, scoring, keys=keys)
    monkeypatch.setattr(score_rows, "IN_MEMORY", 0)
    spilled = score_views(network, views, scoring, keys=keys)
    assert torch.equal(plain.scores[:], spilled.scores[:])
    assert torch.equal(plain[7, 0].inputs, spilled[7, 0].inputs)
    assert plain.labels == spilled.labels
    assert list(tmp_path.iterdir()) == []
