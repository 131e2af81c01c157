"""How training went, from a log that may be missing or broken."""

import json
import logging
from pathlib import Path

import pytest

from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.report.history import history

EPOCH = {"event": "EpochDone", "phase": "warm", "epoch": 1, "train_accuracy": 0.5, "val_accuracy": 0.25}
LAST = {**EPOCH, "phase": "last", "train_accuracy": 1.0}
PUSH = {"event": "PushDone", "epoch": 1, "val_before": 0.25, "val_after": 0.5}
ROUND = {"event": "RoundDone", "epoch": 1, "val_accuracy": 0.5, "kept": True}


def logged(folder: Path, text: str) -> RunFolder:
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    return RunFolder(folder)


def test_epochs_pushes_and_what_was_kept(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps(item) for item in (EPOCH, PUSH, LAST, ROUND))
    curve = history(logged(tmp_path, lines))
    assert curve is not None
    assert (curve.epochs, curve.train, curve.val, curve.kept) == ((1,), (0.5,), (0.25,), 1)
    assert [(push.epoch, push.before, push.after) for push in curve.pushes] == [(1, 0.25, 0.5)]


@pytest.mark.parametrize(
    "text",
    [
        *('{"event": "Epo', "{}", "[1]", "[" * 100_000, json.dumps({**EPOCH, "epoch": None})),
        *(json.dumps({**EPOCH, "epoch": "one"}), json.dumps({**EPOCH, "epoch": 10**30})),
        *(json.dumps({**EPOCH, "train_accuracy": "٣"}), json.dumps({**EPOCH, "seconds": "long"})),
    ],
    ids=lambda text: text[:30],
)
def test_a_damaged_log_is_told(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert history(logged(tmp_path, text)) is None
    assert "metrics.jsonl is damaged" in caplog.text


def test_no_log_is_no_complaint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert history(RunFolder(tmp_path)) is None
    assert not caplog.text
