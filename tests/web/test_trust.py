"""What an answer is worth: prediction sets with what was measured of them, and marks of evidence rows."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Page, expect

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.experiment.explaining.row_marks import row_marks
from dprotonet.experiment.runs.row_places import PlaceLimit
from dprotonet.experiment.trained.answer import Answer
from dprotonet.training.checkpoint import weights_digest
from dprotonet.web.app import create_app
from dprotonet.web.service import Service, ServiceSettings
from web_browser import upload
from web_server import HERE, QUICK, SMALL, sent, served, until

BELOW_ALL = -1.0  # a limit that every pair of places is beyond


@pytest.fixture
def run(web_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(web_run, tmp_path / "birds", ignore=shutil.ignore_patterns("evaluation"))


@pytest.fixture
def doubted(run: Path) -> Iterator[Service]:
    """An evaluated run. Every score of its calibration is 1, so that sets have all classes."""
    model = dp.load(run)
    assert model.calibration is not None
    replace(model.calibration, scores=[1.0] * 20).write(run)
    assert main(["evaluate", str(run), "--json"]) == 0
    found = Service(dp.load(run), ServiceSettings(limits=SMALL, preset=QUICK))
    yield found
    found.close()


def client_of(service: Service) -> TestClient:
    return TestClient(create_app(service), base_url=HERE)


# ── prediction sets ──


def test_sets_are_the_models_and_go_when_prototypes_are_off(
    client: TestClient, model: dp.Model, bird: bytes, bird_file: Path
) -> None:
    assert model.calibration is not None
    known = client.get("/api/run").json()["calibration"]
    assert known["images"] == model.calibration.images == 12
    assert [one["coverage"] for one in known["sets"]] == [0.8, 0.9]  # 0.95 takes 19 images
    found = sent(client, bird)
    for one in found["sets"]:
        wanted = model.predict(bird_file, coverage=one["coverage"]).class_set
        assert one["class_names"] == list(wanted or ())
        assert [model.classes[label] for label in one["labels"]] == one["class_names"]
    path = f"/api/images/{found['image']}/evidence"
    assert client.post(path, json={"off": [0]}).json()["sets"] == []


def test_what_was_measured_is_told_and_only_of_these_weights(doubted: Service, run: Path) -> None:
    """With every class in every set the truth is always there."""
    sets = client_of(doubted).get("/api/run").json()["calibration"]["sets"]
    assert [one["coverage"] for one in sets] == [0.8, 0.9, 0.95]
    for one in sets:
        assert (one["images"], one["covered"], one["mean_size"]) == (12, 1.0, 4.0)
    path = run / "evaluation" / "test.json"
    content = json.loads(path.read_text())
    for change in ({"weights": "other"}, {"class_sets": "none"}):
        path.write_text(json.dumps({**content, **change}))
        told = client_of(doubted).get("/api/run").json()["calibration"]["sets"]
        assert [one["covered"] for one in told] == [None, None, None]


@pytest.mark.parametrize("scores", [None, []], ids=["never calibrated", "by an older version"])
def test_a_run_that_promises_nothing_has_no_sets(run: Path, bird: bytes, scores: list[float] | None) -> None:
    model = dp.load(run)
    assert model.calibration is not None
    model.calibration = None if scores is None else replace(model.calibration, scores=scores)
    service = Service(model, ServiceSettings(limits=SMALL, preset=QUICK))
    client = client_of(service)
    known = client.get("/api/run").json()["calibration"]
    assert known is None if scores is None else known["sets"] == []
    assert sent(client, bird)["sets"] == []
    service.close()


# ── marks of rows ──


def test_marks_are_those_of_explain_and_come_with_the_places(run: Path, bird: bytes, bird_file: Path) -> None:
    model = dp.load(run)
    PlaceLimit(0.0, 0.05, 30, 10, weights_digest(model.network)).write(run)
    service = Service(model, ServiceSettings(limits=SMALL, preset=QUICK))
    client = client_of(service)
    found = sent(client, bird)
    assert [row["mark"] for row in found["rows"]] == [None] * 3
    base, numbers = f"/api/images/{found['image']}", [row["prototype"] for row in found["rows"]]
    job = client.post(f"{base}/places", json={"prototypes": numbers}).json()["job"]
    until(lambda: client.get(f"/api/jobs/{job}").json()["state"] == "done")
    items = model.predict(bird_file).evidence[:3]
    (wanted,) = row_marks(model, [model.pixels(bird_file)], [items])
    rows = client.post(f"{base}/evidence", json={}).json()["rows"]
    for row, mark in zip(rows, wanted, strict=True):
        told = row["mark"]
        assert (told["reliability"], told["word"]) == (mark.kept, mark.word)
        assert told["place_rank"] == pytest.approx(mark.rank, abs=1e-3)
        assert told["places_differ"] == (told["place_rank"] > 0)
        assert told["warning"] == ("the two places do not look alike" if told["places_differ"] else "")
        assert client.get(f"{base}/places/{row['prototype']}").json()["mark"] == told
    service.close()


def test_places_that_are_known_without_marks_get_them(service: Service, bird: bytes) -> None:
    """As after a cancelled job: the decoder is not asked again."""
    client = client_of(service)
    found = sent(client, bird)
    seen, number = service.image(found["image"]), found["rows"][0]["prototype"]
    path = f"/api/images/{found['image']}/places"

    def asked() -> None:
        job = client.post(path, json={"prototypes": [number]}).json()["job"]
        until(lambda: client.get(f"/api/jobs/{job}").json()["state"] == "done")

    asked()
    place = seen.places.find(str(number))
    seen.marks._things.clear()
    asked()
    assert seen.places.find(str(number)) is place
    assert seen.marks.find(str(number)) is not None


# ── in a browser ──


def test_the_page_shows_both(
    page: Page, doubted: Service, bird_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = "dprotonet.experiment.explaining.row_marks._stored_limit"
    monkeypatch.setattr(limited, lambda _model: BELOW_ALL)
    names = doubted.model.predict(bird_file, coverage=0.9).class_set
    assert names is not None
    assert len(names) == 4
    with served(doubted) as address:
        upload(page, address, bird_file)
        expect(page.locator("#sets .set strong")).to_have_text(f"{', '.join(names[:-1])} or {names[-1]}")
        expect(page.locator("#sets")).to_contain_text(
            "Measured on 12 test images: the true class is in 100.0 % of such sets, which have 4.00 classes"
        )
        page.get_by_label("Coverage of the set").select_option("0.95")
        expect(page.get_by_label("Coverage of the set")).to_have_value("0.95")
        expect(page.locator(".worth .term.muted")).to_have_count(3)
        expect(page.locator(".worth").first).to_contain_text("●")
        expect(page.locator(".worth .careful")).to_have_text(
            ["Careful: the two places do not look alike"] * 3
        )
        page.locator(".evidence-row button.quiet").first.click()
        expect(page.locator("#sets")).to_contain_text("With prototypes switched off no set")


def test_the_page_promises_nothing_of_a_stranger(
    page: Page, doubted: Service, bird_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answer, "familiar", property(lambda _answer: False))
    with served(doubted) as address:
        upload(page, address, bird_file)
        expect(page.locator("#sets")).to_contain_text("This image is unlike those")
        expect(page.locator("#sets strong")).to_have_count(0)


def test_the_page_says_that_a_run_is_not_calibrated(page: Page, run: Path, bird_file: Path) -> None:
    (run / "calibration.json").unlink()
    service = Service(dp.load(run), ServiceSettings(limits=SMALL, preset=QUICK))
    with served(service) as address:
        upload(page, address, bird_file)
        expect(page.locator("#sets")).to_contain_text("This run is not calibrated")
        expect(page.locator("#sets select")).to_have_count(0)
    service.close()
