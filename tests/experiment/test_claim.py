"""Two processes on one run folder: the second is told so and touches nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import tiny_config

from dprotonet.cli.main import main
from dprotonet.errors import UserError
from dprotonet.experiment.runs.claim import claimed
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.training.events import EpochDone

HOLDER = """
import sys
from pathlib import Path
from dprotonet.experiment.runs.claim import claimed
with claimed(Path(sys.argv[1])):
    print("claimed", flush=True)
    sys.stdin.read()
"""


def test_another_process_is_kept_out_until_the_first_has_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "claimed\n"
        with pytest.raises(UserError, match="another process is at"), claimed(tmp_path / "run"):
            pass
        holder.kill()  # no chance to tidy up: the claim must not outlive it
    with claimed(tmp_path / "run"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_same_folder_by_another_path_is_the_same_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")
    for other in (Path("."), tmp_path / "link", tmp_path / "run" / ".." / "run"):
        with (
            claimed(tmp_path / "run"),
            pytest.raises(UserError, match="another process"),
            claimed(other),
        ):
            pass
    assert list((tmp_path / "run").iterdir()) == []


def test_only_the_main_process_of_a_distributed_run_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with claimed(tmp_path / "run"):
        monkeypatch.setenv("RANK", "1")
        with claimed(tmp_path / "run"):
            pass
        monkeypatch.setenv("RANK", "0")
        with pytest.raises(UserError), claimed(tmp_path / "run"):
            pass


@pytest.mark.parametrize("way", [["--data", "birds"], ["--resume"], ["--overwrite"]])
def test_train_into_a_folder_that_is_being_trained(
    tmp_path: Path, way: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    events = Trainer(tiny_config(mode="frozen", epochs=2), run, cache=tmp_path / "cache").run()
    for event in events:
        if isinstance(event, EpochDone):
            break
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert main(["train", "--out", str(run), *way]) == 2
    error = capsys.readouterr().err
    assert "another process is at" in error
    assert error.strip().count("\n") == 0
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    events.close()
    assert not os.path.exists(f"{run}.lock")


def test_a_mistake_leaves_no_claim_behind(tmp_path: Path) -> None:
    assert main(["train", "--out", str(tmp_path / "run"), "--data", f"folder:{tmp_path}/none"]) == 2
    assert list(tmp_path.iterdir()) == []
