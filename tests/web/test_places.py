"""Prototypes that are places, over HTTP: their pictures, the boxes of evidence rows, and names of parts."""

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image
from tests.experiment.export.conftest import untrained

import dprotonet as dp
from dprotonet.data.birds import Birds
from dprotonet.web.app import create_app
from dprotonet.web.service import Service, ServiceSettings
from web_server import HERE, QUICK, SMALL, png_of, sent, until


@pytest.fixture
def points(tmp_path: Path) -> Iterator[TestClient]:
    """A run whose regions are the 2 × 2 places of a map."""
    untrained("protopnet").save_pretrained(tmp_path / "run")
    (tmp_path / "run" / "prototypes").mkdir(exist_ok=True)
    image = Birds(species=4, per_species=3, split="train", size=64)[0].image
    (tmp_path / "run" / "prototypes" / "000000.png").write_bytes(png_of(image))
    service = Service(dp.load(tmp_path / "run"), ServiceSettings(limits=SMALL, preset=QUICK))
    yield TestClient(create_app(service), base_url=HERE)
    service.close()


def test_a_card_shows_the_place_and_a_row_its_box(points: TestClient, bird: bytes) -> None:
    item = points.get("/api/prototypes").json()["prototypes"][3]
    assert item["placed"]
    assert item["sources"] == ["3.png"]
    whole, place = (points.get(f"/api/prototypes/3/{kind}") for kind in ("picture", "place"))
    assert Image.open(io.BytesIO(place.content)).size == (256, 256)
    assert Image.open(io.BytesIO(whole.content)).size == (64, 64)
    row = sent(points, bird)["rows"][0]
    assert row["like"] == "looks like"
    for key in ("place", "source_place"):  # a quarter of the image, with its margin
        assert row[key]["width"] == pytest.approx(0.5 + 2 / 14)
        assert 0 <= row[key]["left"] <= 0.5


def test_a_part_is_named_and_evidence_says_it(points: TestClient, bird: bytes, tmp_path: Path) -> None:
    reading = sent(points, bird)
    number = reading["rows"][0]["prototype"]
    answer = points.post(f"/api/prototypes/{number}/name", json={"name": " hooked  beak "})
    assert answer.json() == {"prototype": number, "part": "hooked beak"}
    again = points.post(f"/api/images/{reading['image']}/evidence", json={}).json()
    assert again["rows"][0]["like"] == "its hooked beak, like the hooked beak of"
    assert points.get("/api/prototypes").json()["prototypes"][number]["part"] == "hooked beak"
    kept = json.loads((tmp_path / "run" / "part_names.json").read_text())
    assert kept["names"] == {str(number): {"name": "hooked beak", "share": None, "given": True}}


@pytest.mark.parametrize(
    ("path", "name", "status", "words"),
    [
        ("0", "", 400, "empty name"),
        ("0", "a" * 41, 400, "at most 40"),
        ("99", "beak", 404, "there is no prototype 99"),
    ],
)
def test_wrong_names(points: TestClient, path: str, name: str, status: int, words: str) -> None:
    answer = points.post(f"/api/prototypes/{path}/name", json={"name": name})
    assert answer.status_code == status
    assert words in answer.json()["detail"]


def test_prototypes_of_masks_are_shown_whole_and_have_no_part(client: TestClient) -> None:
    assert not client.get("/api/prototypes").json()["prototypes"][0]["placed"]
    assert Image.open(io.BytesIO(client.get("/api/prototypes/0/place").content)).size == (64, 64)
    answer = client.post("/api/prototypes/0/name", json={"name": "beak"})
    assert answer.status_code == 400
    assert "prototypes of masks have no place" in answer.json()["detail"]


def test_prototypes_of_masks_show_their_heatmap_once_it_is_made(
    web_run: Path, tmp_path: Path, bird: bytes
) -> None:
    """On the training image, as found when an image was explained; nothing is made for a card."""
    copy = shutil.copytree(web_run, tmp_path / "run", ignore=shutil.ignore_patterns("explanations"))
    service = Service(dp.load(copy), ServiceSettings(limits=SMALL, preset=QUICK))
    client = TestClient(create_app(service), base_url=HERE)
    path = f"/api/images/{sent(client, bird)['image']}/places"
    assert same(client, 2)
    job = client.post(path, json={"prototypes": [2]}).json()["job"]
    until(lambda: client.get(f"/api/jobs/{job}").json()["state"] == "done")
    assert not same(client, 2)
    assert same(client, 3)
    answer = client.get("/api/prototypes/2/place")
    assert Image.open(io.BytesIO(answer.content)).size == (64, 64)
    assert answer.headers["Cache-Control"] == "no-store"  # a card that was drawn before shall change
    service.close()


def same(client: TestClient, number: int) -> bool:
    """Whether a card shows the training image as it is."""
    picture, place = (client.get(f"/api/prototypes/{number}/{kind}").content for kind in ("picture", "place"))
    return picture == place
