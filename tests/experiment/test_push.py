"""To the hub and back, against a stand-in for its server on this machine; nobody else is asked."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import constants
from PIL import Image
from tests.hub_server import TOKEN, Hub, Repository, hub_server

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.errors import UserError
from dprotonet.experiment.transfer.model_card import CardText, model_card

NAME = "ann/birds"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with nothing in it, and an empty cache."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # the hub's library waits before it asks again
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    _only_this_machine(monkeypatch)
    with hub_server() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
        template = f"{hub.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield hub


def _only_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def watched(self: socket.socket, address: Any) -> None:
        assert address[0] == "127.0.0.1", f"{address} was contacted"
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", watched)


@pytest.fixture
def bird(tmp_path: Path) -> Path:
    path = tmp_path / "bird.png"
    image = dp.Birds(per_species=1, split="test", size=64)[0].image
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
    return path


@pytest.fixture
def pushed(hub: Hub, run_folder: Path) -> Hub:
    assert main(["push", str(run_folder), NAME, "--licence", "apache-2.0"]) == 0
    return hub


def files_of(hub: Hub, name: str = NAME) -> dict[str, bytes]:
    repository = hub.repositories[name]
    return repository.commits[repository.branches["main"]]


def test_there_and_back(pushed: Hub, run_folder: Path, bird: Path) -> None:
    there, here = dp.load(NAME), dp.load(run_folder)
    assert there.predict(bird) == here.predict(bird)
    assert there.calibration == here.calibration
    assert [record.image for record in there.prototypes] == [record.image for record in here.prototypes]


def test_what_is_uploaded_and_what_stays(pushed: Hub, run_folder: Path) -> None:
    files = files_of(pushed)
    suffixes = {Path(name).suffix for name in files}
    assert suffixes <= {".md", ".toml", ".json", ".safetensors", ".png"}
    assert not {"environment.json", "metrics.jsonl", "origins.json"} & set(files)
    secret = str(run_folder.parent).encode()
    assert not [name for name, data in files.items() if secret in data]


def test_without_pictures_no_image_and_no_file_name_leaves(hub: Hub, run_folder: Path, bird: Path) -> None:
    assert main(["push", str(run_folder), NAME, "--no-pictures"]) == 0
    files = files_of(hub)
    assert not [name for name in files if name.endswith(".png")]
    sources = [record.source for record in dp.load(run_folder).prototypes]
    assert not [one for one in sources if one.encode() in files["prototypes.json"]]
    model = dp.load(NAME)
    assert model.predict(bird).probabilities == dp.load(run_folder).predict(bird).probabilities
    with pytest.raises(UserError, match="training images of its prototypes are unknown"):
        model.explain(bird)


def test_nothing_is_uploaded_with_out(hub: Hub, run_folder: Path, tmp_path: Path) -> None:
    words = ["push", str(run_folder), NAME, "--out"]
    assert main([*words, str(tmp_path / "staged")]) == 0
    assert hub.asked == []
    assert (tmp_path / "staged" / "README.md").is_file()
    dp.load(tmp_path / "staged")
    assert main([*words, str(tmp_path / "staged")]) == 2  # is not overwritten


def test_revisions_are_pinned(pushed: Hub, run_folder: Path, bird: Path) -> None:
    first = pushed.repositories[NAME].branches["main"]
    assert main(["push", str(run_folder), NAME, "--intended-use", "another"]) == 0
    assert pushed.repositories[NAME].branches["main"] != first
    folder = dp.load(NAME, revision=first).folder
    assert folder is not None
    assert folder.name == first
    assert main(["push", str(run_folder), NAME, "--revision", "next"]) == 0
    assert "next" in pushed.repositories[NAME].branches
    dp.load(NAME, revision="next")
    with pytest.raises(UserError, match="it has no revision 'nowhere'"):
        dp.load(NAME, revision="nowhere")


def test_a_folder_of_the_same_name_wins_and_hub_is_the_hub(pushed: Hub, run_folder: Path) -> None:
    local = Path(NAME)
    dp.load(run_folder).save(local)
    asked = len(pushed.asked)
    assert dp.load(NAME).folder == local
    assert len(pushed.asked) == asked
    found = dp.load(f"hub:{NAME}").folder
    assert found is not None
    assert found != local
    with pytest.raises(UserError, match="is a folder here, which has no revisions"):
        dp.load(NAME, revision="main")


def test_absent_private_and_gated(pushed: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="there is no such model, or it is private; log in"):
        dp.load("nobody/nothing")
    pushed.repositories[NAME].private = True
    dp.load(NAME)  # the token is known
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UserError, match="there is no such model, or it is private; log in"):
        dp.load(NAME, cache_dir="other")
    pushed.repositories[NAME].private, pushed.repositories[NAME].gated = False, True
    with pytest.raises(UserError, match="its owner has to grant access"):
        dp.load(NAME, cache_dir="other")


def test_another_programs_repository(hub: Hub) -> None:
    hub.repositories[NAME] = Repository()
    hub.repositories[NAME].commit({"pytorch_model.bin": b"a pickle", "config.json": b"{}", "code.py": b"1/0"})
    with pytest.raises(UserError, match=r"ann/birds on the hub is no model of dprotonet.*config.toml"):
        dp.load(NAME)
    assert not [one for one in hub.asked if one.endswith((".bin", ".py"))]  # never fetched


def test_a_damaged_file(pushed: Hub) -> None:
    weights = files_of(pushed)["model.safetensors"]
    pushed.repositories[NAME].commit({"model.safetensors": weights[:1000]})
    with pytest.raises(UserError, match=r"model\.safetensors"):
        dp.load(NAME)


def test_a_download_that_ends_half_way(pushed: Hub, monkeypatch: pytest.MonkeyPatch, bird: Path) -> None:
    pushed.cut = "model.safetensors"
    with pytest.raises(UserError, match="could not be had from the hub"):
        dp.load(NAME)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # and the network is gone
    with pytest.raises(UserError, match=r"half-way|unfinished"):
        dp.load(NAME)
    monkeypatch.setattr(constants, "ENDPOINT", pushed.endpoint)
    pushed.cut = ""
    assert dp.load(NAME).predict(bird).class_name


def test_without_a_network_the_cache_serves(pushed: Hub, monkeypatch: pytest.MonkeyPatch, bird: Path) -> None:
    before = dp.load(NAME).predict(bird)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert dp.load(NAME).predict(bird) == before
    with pytest.raises(UserError, match="the hub does not answer"):
        dp.load("ann/cats")


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("others/birds", {}, "your token may not write there"),
    (NAME, {"token": "wrong"}, "you are not logged in"),
    (NAME, {"failing": 500}, "it answers 500"),
    ("birds", {}, "write OWNER/NAME"),
    ("a/b/c", {}, "is no name for the hub"),
    ("an n/birds", {}, "is no name for the hub"),
]


@pytest.mark.parametrize(("name", "state", "message"), REFUSED, ids=[row[2] for row in REFUSED])
def test_uploads_that_are_refused(
    name: str,
    state: dict[str, Any],
    message: str,
    hub: Hub,
    run_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "token" in state:
        monkeypatch.setenv("HF_TOKEN", state["token"])
    hub.failing = state.get("failing", 0)
    assert main(["push", str(run_folder), name]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0


def test_no_network_to_push_to(
    hub: Hub, run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert main(["push", str(run_folder), NAME]) == 2
    assert "could not be written on the hub" in capsys.readouterr().err


def test_the_card_says_what_was_measured(run_folder: Path, tmp_path: Path) -> None:
    model = dp.load(run_folder)
    card = model_card(model, run_folder, CardText("mit", "Counting birds."), repository=NAME)
    _, head, body = card.split("---\n", 2)
    assert yaml.safe_load(head)["license"] == "mit"
    for words in ('dp.load("ann/birds")', "Counting birds.", "95 % interval", "validation images", "# birds"):
        assert words in body
    model.save(tmp_path / "bare")
    bare = model_card(dp.load(tmp_path / "bare"), tmp_path / "bare", CardText(), repository=NAME)
    assert "Not measured." in bare
    assert "not stated; ask the owner" in bare


def test_the_card_takes_the_test_images_of_these_weights_only(run_folder: Path, tmp_path: Path) -> None:
    model = dp.load(run_folder)
    model.save(tmp_path / "run")
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    found = json.loads((tmp_path / "run" / "evaluation" / "test.json").read_text())
    card = model_card(model, tmp_path / "run", CardText(), repository=NAME)
    assert f"on {found['images']} test images" in card
    stale = {**found, "weights": "others"}
    (tmp_path / "run" / "evaluation" / "test.json").write_text(json.dumps(stale))
    assert "test images" not in model_card(model, tmp_path / "run", CardText(), repository=NAME).split(
        "Probab"
    )[0].replace("Test images were not", "")


def test_nothing_breaks_out_of_the_card(run_folder: Path) -> None:
    model = dp.load(run_folder)
    model.classes = ("<script>", "a](http://x)", *model.classes[2:])
    card = model_card(model, run_folder, CardText(licence='x"\n---\nevil: 1'), repository=NAME)
    assert yaml.safe_load(card.split("---\n", 2)[1])["license"].startswith('x"')
    assert "<script>" not in card
    assert "](http" not in card
