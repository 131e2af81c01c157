"""Two runs side by side: a prototype network and a black box of other size, over HTTP and in a browser."""

import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from playwright.sync_api import Page, expect

import dprotonet as dp
from conftest import rival_config
from dprotonet.cli.main import main
from dprotonet.data.birds import Birds
from dprotonet.errors import UserError
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.web.app import create_app
from dprotonet.web.pair import pair
from dprotonet.web.service import Service, ServiceSettings
from web_browser import upload
from web_server import HERE, QUICK, SMALL, sent, served, until

SPECIES = {"species": 4, "train_per_species": 6, "val_per_species": 3, "test_per_species": 3}
BIRDS = Birds(species=4, per_species=3, split="test", size=64)


@pytest.fixture(scope="module")
def black_box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the same birds, at 96 pixels."""
    training = {"epochs": 2, "warm_epochs": 1, "push_every": 2, "batch_size": 8}
    tables = {
        "data": {**SPECIES, "image_size": 96},
        "network": {"backbone": "timm:test_resnet:none"},
        "training": training,
    }
    folder = tmp_path_factory.mktemp("pair") / "box"
    for _ in Trainer(rival_config("blackbox", tables), folder).run():
        pass
    return folder


@pytest.fixture(scope="module")
def both(web_run: Path, black_box: Path) -> Iterator[Service]:
    settings = ServiceSettings(limits=SMALL, preset=QUICK)
    first, second = (Service(dp.load(folder), settings) for folder in (web_run, black_box))
    pair(first, second)
    yield first
    for one in first.together:
        one.close()


@pytest.fixture(scope="module")
def api(both: Service) -> TestClient:
    return TestClient(create_app(both), base_url=HERE)


@pytest.fixture(scope="module")
def pair_address(both: Service) -> Iterator[str]:
    with served(both) as found:
        yield found


def shares(answer: dict) -> dict[str, float]:
    return {one["class_name"]: one["probability"] for one in answer["probabilities"]}


def test_both_are_told(api: TestClient) -> None:
    for number, name in enumerate(("birds", "box")):
        found = api.get("/api/run", params={"model": number}).json()
        assert (found["name"], found["model"]) == (name, number)
        assert found["runs"] == [{"model": 0, "name": "birds"}, {"model": 1, "name": "box"}]
    assert api.get("/api/run").json()["name"] == "birds"


@pytest.mark.parametrize("asked", [0, 1])
def test_an_upload_has_the_answers_that_each_gives_alone(
    api: TestClient, both: Service, bird_file: Path, asked: int
) -> None:
    files = {"file": ("bird.png", bird_file.read_bytes())}
    image = api.post("/api/images", files=files, params={"model": asked}).json()["image"]
    for number, service in enumerate(both.together):
        found = api.post(f"/api/images/{image}/evidence", json={}, params={"model": number}).json()
        wanted = service.model.predict(bird_file)
        assert shares(found) == pytest.approx(dict(wanted.probabilities), abs=1e-5)
    assert found["rows"] == []  # of a black box


def test_a_test_image_is_the_one_of_each_runs_own_data(api: TestClient, both: Service) -> None:
    """Drawn at 96 pixels for the one that takes 96: not the other's, resized."""
    until(lambda: api.get("/api/samples", params={"model": 1}).json()["ready"])
    image = api.post("/api/samples/5").json()["image"]
    own = Birds(species=4, per_species=3, split="test", size=96)[5].image
    found = api.post(f"/api/images/{image}/evidence", json={}, params={"model": 1}).json()
    assert shares(found) == pytest.approx(dict(both.together[1].model.predict(own).probabilities), abs=1e-5)
    assert found["truth_name"] == BIRDS.classes[BIRDS.labels[5]]
    shown = api.get(f"/api/images/{image}/picture", params={"model": 1})
    assert Image.open(io.BytesIO(shown.content)).size == (96, 96)


def test_maps_by_the_same_explainer(api: TestClient, bird: bytes) -> None:
    image = sent(api, bird)["image"]
    for number, side in ((0, 64), (1, 96)):
        asked = {"model": number}
        path = f"/api/images/{image}/maps"
        job = api.post(path, json={"label": 2, "method": "gradcam"}, params=asked).json()["job"]
        until(
            lambda job=job, asked=asked: api.get(f"/api/jobs/{job}", params=asked).json()["state"] == "done"
        )
        values = np.load(io.BytesIO(api.get(f"{path}/2/gradcam", params=asked).content))
        assert values.shape == (side, side)
        assert api.get(f"/api/jobs/{job}", params={"model": 1 - number}).status_code == 404


def test_the_guard_is_at_both(api: TestClient) -> None:
    elsewhere = {"Origin": "http://evil.example.com"}
    for path in ("/api/cleaned", "/api/samples/0", "/api/what-if"):
        answer = api.post(path, params={"model": 1}, json={"off": []}, headers=elsewhere)
        assert answer.status_code == 403
    assert (
        api.get("/api/gallery", params={"model": 1}, headers={"Host": "evil.example.com"}).status_code == 421
    )
    assert api.post("/api/images", params={"model": 1}, files={"file": b"\0" * 400_000}).status_code == 413


def test_one_run_has_no_second(client: TestClient) -> None:
    answer = client.get("/api/run", params={"model": 1})
    assert answer.status_code == 404
    assert "serve RUN_A RUN_B" in answer.json()["detail"]
    assert client.get("/api/run", params={"model": 2}).status_code == 422


def test_names_that_clash_are_told_apart(web_run: Path, tmp_path: Path) -> None:
    for seed in ("seed0", "seed1"):
        shutil.copytree(web_run, tmp_path / seed / "birds")
    services = [Service(dp.load(tmp_path / seed / "birds")) for seed in ("seed0", "seed1")]
    pair(*services)
    assert [one.name for one in services] == ["seed0/birds", "seed1/birds"]
    for one in services:
        one.close()


def test_a_run_beside_itself_is_refused(web_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(web_run), str(web_run / ".." / web_run.name)]) == 2
    assert "was given twice" in capsys.readouterr().err
    assert main(["serve", str(web_run), str(web_run / "nowhere")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_each_run_is_loaded_once(
    web_run: Path, black_box: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded, load = [], dp.Model.load.__func__  # type: ignore[attr-defined]

    def counted(cls: type[dp.Model], folder: Path, **named: object) -> dp.Model:
        loaded.append(Path(folder).name)
        found: dp.Model = load(cls, folder, **named)
        return found

    def stop(service: Service, *_given: object, **_named: object) -> None:
        assert [one.name for one in service.together] == ["birds", "box"]
        for one in service.together:
            one.close()
        raise UserError("that is enough")

    monkeypatch.setattr(dp.Model, "load", classmethod(counted))
    monkeypatch.setattr("dprotonet.web.serve.serve", stop)
    assert main(["serve", str(web_run), str(black_box)]) == 2
    assert "that is enough" in capsys.readouterr().err
    assert loaded == ["birds", "box"]


# ── in a browser ──


def test_side_by_side(page: Page, pair_address: str, both: Service, bird_file: Path) -> None:
    upload(page, pair_address, bird_file)
    columns = page.locator(".beside-run")
    expect(columns).to_have_count(2)
    answers = [one.model.predict(bird_file) for one in both.together]
    for column, answer, name in zip(columns.all(), answers, ("birds", "box"), strict=True):
        expect(column.locator("h3")).to_have_text(name)
        expect(column.locator(".headline strong")).to_have_text(answer.class_name)
    same = answers[0].class_name == answers[1].class_name
    expect(page.locator("#beside-words")).to_contain_text("Both see" if same else "They disagree")
    expect(columns.nth(1)).to_contain_text("A black box gives no evidence")
    page.locator("#beside-method").select_option("gradcam")
    expect(page.locator("#beside-overlap")).to_contain_text("overlap by")
    share = float(re.findall(r"by (?:< )?([\d.]+) %", page.locator("#beside-overlap").inner_text())[0])
    assert 0 <= share <= 100


def test_the_whole_page_for_the_other_run(
    page: Page, pair_address: str, bird_file: Path, both: Service
) -> None:
    upload(page, pair_address, bird_file)
    page.get_by_role("link", name="Everything about box").click()
    expect(page.locator("#run")).to_contain_text("box")
    answer = both.together[1].model.predict(bird_file)
    expect(page.locator("#headline strong")).to_have_text(answer.class_name)  # the same image
    page.get_by_role("link", name="Switch to birds").click()
    expect(page.locator("#run")).to_contain_text("8 prototypes")


def test_one_run_shows_no_second_column(page: Page, address: str, bird_file: Path) -> None:
    upload(page, address, bird_file)
    expect(page.locator(".evidence-row")).to_have_count(3)
    expect(page.locator("#beside")).to_be_hidden()
    expect(page.locator("#runs")).to_be_hidden()


def test_overlap_of_maps(page: Page, address: str) -> None:
    """By hand: fifths of a 10 × 10 and a 20 × 20 map that share half of their places."""
    page.goto(address)
    found = page.evaluate(
        """async () => {
            const { fromNpy, overlap } = await import("/static/heat.js");
            const npy = (side, first) => {
                const shape = `'shape': (${side}, ${side})`;
                const header = `{'descr': '<f4', 'fortran_order': False, ${shape}, }`.padEnd(117) + "\\n";
                const values = Float32Array.from({ length: side * side }, (_, at) => {
                    const row = Math.floor(at / side) * 10 / side;
                    return row >= first && row < first + 2 ? 1 : 0;
                });
                const data = new Uint8Array(128 + values.byteLength);
                data.set([0x93, 78, 85, 77, 80, 89, 1, 0, 118, 0]);
                data.set(new TextEncoder().encode(header), 10);
                data.set(new Uint8Array(values.buffer), 128);
                return fromNpy(data.buffer);
            };
            const pairs = [[npy(10, 2), npy(20, 3)], [npy(10, 2), npy(20, 2)], [npy(10, 0), npy(10, 6)]];
            return pairs.map(([one, other]) => overlap(one, other));
        }"""
    )
    assert found == pytest.approx([1 / 3, 1, 0], abs=0.03)
