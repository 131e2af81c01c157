"""After a kill between a temporary file and its renaming train, --resume and --overwrite all work."""

import os
from pathlib import Path

import pytest
from tests.conftest import tiny_config
from tests.experiment.test_trainer import train, without_seconds

from dprotonet.cli.main import main
from dprotonet.errors import UserError
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.files import put_aside, remove_unfinished
from dprotonet.training.checkpoint import kept_checkpoint, save_checkpoint
from dprotonet.training.engine import Engine, Position

LEFT = "config.toml.0123456789ab.tmp"
WORDS = ["--data", "birds", "--species", "2", "--train-per-species", "2", "--epochs", "1"]


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A folder in which the first file was not whole yet."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LEFT).write_text("[da")
    return tmp_path / "run"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_leftovers_is_trained_into(killed: Path, overwrite: bool) -> None:
    train(tiny_config(mode="frozen", epochs=2), killed, overwrite=overwrite)
    assert (killed / "model.safetensors").is_file()
    assert not list(killed.rglob("*.tmp"))


def test_resume_sends_to_train_which_works(killed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each of the three used to name another as the way on."""
    assert main(["train", "--resume", "--out", str(killed)]) == 2
    assert "start without --resume" in capsys.readouterr().err
    assert not RunFolder(killed).check_free(overwrite=False)
    assert not RunFolder(killed).check_free(overwrite=True)


def test_what_is_not_ours_still_stands_in_the_way(killed: Path) -> None:
    (killed / "precious.tmp").write_text("mine")
    for overwrite, words in ((False, "not empty"), (True, "will not be overwritten")):
        with pytest.raises(UserError, match=words):
            RunFolder(killed).create(overwrite=overwrite)
    assert sorted(path.name for path in killed.iterdir()) == [LEFT, "precious.tmp"]


def test_a_run_that_is_overwritten_goes_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill while it was removed left half a run: neither resumable nor to be overwritten."""
    run = tmp_path / "run"
    RunFolder(run).create(overwrite=False)
    RunFolder(run).write_config(tiny_config())
    (run / "metrics.jsonl").write_text("{}\n")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dprotonet.files.shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            RunFolder(run).create(overwrite=True)
    assert not run.exists()
    RunFolder(run).create(overwrite=False)
    assert os.listdir(tmp_path) == ["run"]  # what had been put aside is gone too


def test_overwriting_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    run = RunFolder(tmp_path / "run")
    run.create(overwrite=False)
    run.write_config(tiny_config())
    run.create(overwrite=True)
    assert (tmp_path / "run").is_symlink()
    assert list((tmp_path / "disk").iterdir()) == []


def test_leftovers_in_a_run_go_when_it_is_resumed(tmp_path: Path) -> None:
    config = tiny_config(mode="frozen", epochs=2)
    train(config, tmp_path / "run")
    before = without_seconds(tmp_path / "run")
    for place in (tmp_path / "run", tmp_path / "run" / "prototypes"):
        (place / "model.safetensors.0123456789ab.tmp").write_text("half")
    train(config, tmp_path / "run", resume=True)
    assert not list(tmp_path.rglob("*.tmp"))
    assert without_seconds(tmp_path / "run") == before


def test_only_names_of_ours_are_leftovers(tmp_path: Path) -> None:
    ours = [tmp_path / LEFT, tmp_path / ".run.0123456789ab.tmp"]
    others = [tmp_path / name for name in ("a.tmp", "a.0123456789abc.tmp", "a.0123456789ab.tmp.txt", "tmp")]
    for path in (*ours, *others):
        path.mkdir()
        (path / "content").write_text("half")
    remove_unfinished(tmp_path, of="run")
    assert not ours[1].exists()
    assert ours[0].exists()
    remove_unfinished(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_a_folder_is_put_aside_in_one_step(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").write_text("content")
    put_aside(tmp_path / "run", last="file")
    assert list(tmp_path.iterdir()) == []


def test_the_only_checkpoint_is_never_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between two renames leaves the old one, which the next removed before it stood itself."""
    place = tmp_path / "checkpoint"
    engine = _engine()
    engine.position = Position(epoch=1)
    save_checkpoint(place, engine, {})
    place.rename(tmp_path / "checkpoint.old")
    plain = os.replace

    def killed(source: object, target: object) -> None:
        if Path(str(target)) == place:
            raise KeyboardInterrupt
        plain(str(source), str(target))

    engine.position = Position(epoch=2)
    with monkeypatch.context() as patch:
        patch.setattr("dprotonet.training.checkpoint.os.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(place, engine, {})
    kept = kept_checkpoint(place)
    assert kept is not None
    assert '"epoch": 1' in (kept / "state.json").read_text()
    save_checkpoint(place, engine, {})
    assert '"epoch": 2' in (place / "state.json").read_text()
    assert os.listdir(tmp_path) == ["checkpoint"]


def _engine() -> Engine:
    from accelerate import Accelerator
    from tests.conftest import tiny_network, tiny_views

    from dprotonet.training.push import Pusher

    accelerator = Accelerator(cpu=True)
    return Engine(tiny_network(), tiny_views(), tiny_views("val"), accelerator, Pusher(accelerator))
