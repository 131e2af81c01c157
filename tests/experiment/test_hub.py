"""A model's folder by its name: paths are told at once, the hub is asked once, its cache serves without."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

import dprotonet as dp
from dprotonet.errors import UserError
from dprotonet.experiment.transfer import hub
from dprotonet.experiment.transfer.hub import model_folder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody listens there


def never(*_: object, **__: object) -> str:
    raise AssertionError("the hub was asked")


def failing(error: Exception) -> Callable[..., str]:
    def download(*_: object, **__: object) -> str:
        raise error

    return download


@pytest.mark.parametrize(
    "name", ["birds", "./birds", "../birds", "~/birds", "/runs/birds", "a/b/c", "user/", "runs/birds", ""]
)
def test_a_path_that_is_not_there_is_told_without_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("runs").mkdir()
    monkeypatch.setattr(hub, "_silence", never)
    monkeypatch.setattr(hub, "snapshot_download", never)
    if name == "":
        assert model_folder(name) == Path()  # the folder one is in, as everywhere
        return
    with pytest.raises(UserError, match="does not exist; give the --out folder"):
        dp.Model.from_pretrained(name)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("")
    with pytest.raises(UserError, match="is not a folder"):
        model_folder(tmp_path / "model")


def test_a_silent_hub_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    download = hub.snapshot_download

    def watched(name: str, **settings: Any) -> str:
        asked.append(settings)
        return download(name, **settings)

    monkeypatch.setattr(hub, "snapshot_download", watched)
    with pytest.raises(UserError, match=r"nonsense/id is no folder here .* does not answer") as raised:
        dp.Model.from_pretrained("nonsense/id", force_download=True)
    assert "\n" not in str(raised.value)
    assert [settings["local_files_only"] for settings in asked] == [True]


def test_a_silent_hub_leaves_its_cache(tmp_path: Path) -> None:
    repository = tmp_path / "cache" / "models--some--one"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    with pytest.raises(
        UserError, match=r"no model of dprotonet, or its download ended half-way: config\.toml"
    ):
        model_folder("some/one")
    for file in hub.NEEDED:
        (snapshot / file).write_text("")
    assert model_folder("some/one") == snapshot


def test_settings_reach_the_hub_and_its_refusal_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "_silence", str)
    given: dict[str, Any] = {}
    place = tmp_path / "there"
    place.mkdir()
    for file in hub.NEEDED:
        (place / file).write_text("")

    def download(name: str, **settings: Any) -> str:
        given.update(settings)
        return str(place)

    monkeypatch.setattr(hub, "snapshot_download", download)
    wanted = {"revision": "v1", "cache_dir": "c", "force_download": True, "token": "t"}
    assert model_folder("some/one", **wanted) == place  # type: ignore[arg-type]
    assert given == {**wanted, "local_files_only": False, "allow_patterns": list(hub.FETCHED)}
    monkeypatch.setattr(hub, "snapshot_download", failing(RuntimeError("404, not found.\nRequest ID: 1")))
    with pytest.raises(UserError, match="from the hub: 404, not found; give") as raised:
        model_folder("some/one")
    assert "\n" not in str(raised.value)


def test_local_files_only_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_silence", never)
    with pytest.raises(UserError, match="some/one is no folder here"):
        model_folder("some/one", local_files_only=True)
