"""Networks that were not trained here on the page: alone, and beside a run on the same image."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from playwright.sync_api import Page, expect
from torch import Tensor, nn

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.data.transforms import Normalise
from dprotonet.errors import UserError
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.experiment.trained.plain_model import PlainModel
from dprotonet.interpretation.outputs import GivenTask
from dprotonet.web.app import create_app
from dprotonet.web.pair import pair
from dprotonet.web.service import Service, ServiceSettings
from web_browser import upload
from web_server import HERE, QUICK, SMALL, png_of, sent, served, until

SETTINGS = ServiceSettings(limits=SMALL, preset=QUICK)
TIMM = "timm:test_resnet:none"


class Halves(nn.Module):
    """Logits are the brightness of the upper and of the lower half, minus a half, times ten."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.features = nn.Conv2d(3, 1, 4, stride=4, bias=False)
        nn.init.constant_(self.features.weight, 1 / 48)

    def forward(self, images: Tensor) -> Tensor:
        seen = self.features(images).squeeze(1)
        halves = torch.stack([seen[:, :4].mean(dim=(1, 2)), seen[:, 4:].mean(dim=(1, 2))], dim=1)
        return (10 * (halves - 0.5))[:, : self.outputs]


def halves(task: GivenTask, names: tuple[str, ...] = ("upper", "lower")) -> PlainModel:
    network = Halves(1 if task in ("binary", "regression") else 2)
    as_it_is = Normalise((0.0,) * 3, (1.0,) * 3)
    known = Classifier.of_module(network, names, size=32, normalise=as_it_is, task=task, name="halves")
    return PlainModel(known)


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[TestClient]:
    service = Service(halves(request.param), SETTINGS)
    yield TestClient(create_app(service), base_url=HERE)
    service.close()


@pytest.fixture(scope="module")
def both(web_run: Path) -> Iterator[Service]:
    torch.manual_seed(0)
    first, second = Service(dp.load(web_run), SETTINGS), Service(PlainModel(Classifier.open(TIMM)), SETTINGS)
    pair(first, second)
    yield first
    for one in first.together:
        one.close()


def half_lit() -> bytes:
    pixels = torch.zeros(3, 32, 32, dtype=torch.uint8)
    pixels[:, :16] = 255
    return png_of(pixels)


def done(client: TestClient, job: str, **asked: int) -> None:
    until(lambda: client.get(f"/api/jobs/{job}", params=asked).json()["state"] not in ("waiting", "running"))
    assert client.get(f"/api/jobs/{job}", params=asked).json()["state"] == "done"


SURE = 1 / (1 + np.exp(-5.0))
WANTED = {
    "single": {"upper": 1 / (1 + np.exp(-10.0)), "lower": 1 / (1 + np.exp(10.0))},
    "multilabel": {"upper": SURE, "lower": 1 - SURE},
    "binary": {"lower": SURE, "upper": 1 - SURE},  # its one logit is that of the second class
}


@pytest.mark.parametrize(("client", "wanted"), WANTED.items(), ids=list(WANTED), indirect=["client"])
def test_probabilities_are_those_of_the_task(client: TestClient, wanted: dict[str, float]) -> None:
    """By hand: an image whose upper half is white has logits of 5 and -5."""
    found = sent(client, half_lit())
    shares = {one["class_name"]: one["probability"] for one in found["probabilities"]}
    assert shares == pytest.approx(wanted, abs=1e-5)
    assert found["class_name"] == max(wanted, key=wanted.__getitem__)
    assert (found["rows"], found["sets"], found["warning"]) == ([], [], "")
    run = client.get("/api/run").json()
    assert (run["name"], run["plain"], run["prototypes"]) == ("halves", True, 0)
    assert run["calibration"] is None


@pytest.mark.parametrize("client", ["multilabel"], indirect=True)
@pytest.mark.parametrize("method", ["mdm", "gradcam"])
def test_maps_lie_on_the_half_that_counts(client: TestClient, method: str) -> None:
    found = sent(client, half_lit())
    path = f"/api/images/{found['image']}/maps"
    done(client, client.post(path, json={"label": 0, "method": method}).json()["job"])
    values = np.load(io.BytesIO(client.get(f"{path}/0/{method}").content))
    assert values[:16].mean() > values[16:].mean()


@pytest.mark.parametrize("client", ["single"], indirect=True)
def test_what_takes_a_run_is_refused_in_a_sentence(client: TestClient) -> None:
    until(lambda: client.get("/api/samples").json()["ready"])
    assert "was not trained here" in client.get("/api/samples").json()["reason"]
    until(lambda: client.get("/api/gallery").json()["state"] == "failed")
    assert "was not trained here" in client.get("/api/gallery").json()["message"]
    assert client.get("/api/prototypes").json()["prototypes"] == []
    image = sent(client, half_lit())["image"]
    answer = client.post(f"/api/images/{image}/places", json={"prototypes": [0]})
    assert answer.status_code == 404
    maps = f"/api/images/{image}/maps"
    assert client.post(maps, json={"label": 0, "method": "similarity"}).status_code == 404


def test_a_value_has_no_classes() -> None:
    with pytest.raises(UserError, match="gives a value, and the page is about classes"):
        halves("regression", names=())


def test_a_run_and_a_plain_network_on_one_image(both: Service, bird: bytes, bird_file: Path) -> None:
    client = TestClient(create_app(both), base_url=HERE)
    image = sent(client, bird)["image"]
    plain = both.together[1].model
    found = client.post(f"/api/images/{image}/evidence", json={}, params={"model": 1}).json()
    with torch.no_grad():
        wanted = plain.network(plain.inputs([bird_file])).softmax(dim=1)[0].double()
    assert found["predicted"] == int(wanted.argmax())
    assert found["probabilities"][0]["probability"] == pytest.approx(float(wanted.max()), abs=1e-5)
    until(lambda: client.get("/api/samples").json()["ready"])
    image = client.post("/api/samples/4").json()["image"]  # of the run's data; the other has none
    again = client.post(f"/api/images/{image}/evidence", json={}, params={"model": 1})
    assert again.status_code == 200
    assert again.json()["truth_name"] == both.model.classes[both.samples.data().test.labels[4]]
    assert again.json()["truth"] is None


def test_side_by_side_in_a_browser(page: Page, both: Service, bird_file: Path) -> None:
    with served(both) as address:
        upload(page, address, bird_file)
        columns = page.locator(".beside-run")
        expect(columns.nth(1).locator("h3")).to_have_text(TIMM)
        expect(columns.nth(1)).to_contain_text("A plain network gives no evidence")
        page.locator("#beside-method").select_option("gradcam")
        expect(page.locator("#beside-overlap")).to_contain_text("overlap by")
        page.get_by_role("link", name=f"Everything about {TIMM}").click()
        expect(page.locator("#run")).to_contain_text("1000 classes · a plain network")
        expect(page.locator("#sets")).to_contain_text("This network is not calibrated")
        expect(page.locator("#to-gallery")).to_be_hidden()
        page.get_by_role("link", name="Switch to birds").click()
        page.locator(".tile").first.click()
        expect(columns.nth(1)).to_contain_text("a class that it does not know")
        expect(columns.nth(1).locator(".tag.bad")).to_have_count(0)


def test_the_command_opens_them(
    web_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[list[tuple[str, str, int]]] = []

    def stop(service: Service, *_given: object, **_named: object) -> None:
        opened.append([(one.name, one.model.task.kind, len(one.model.classes)) for one in service.together])
        for one in service.together:
            one.close()

    monkeypatch.setattr("dprotonet.web.serve.serve", stop)
    names = tmp_path / "names.txt"
    names.write_text("\n".join(f"thing {number}" for number in range(1000)))
    assert main(["serve", str(web_run), TIMM, "--classes", str(names), "--task", "multilabel"]) == 0
    assert opened == [[("birds", "single", 4), (TIMM, "multilabel", 1000)]]
    assert main(["serve", TIMM]) == 0
    assert opened[1] == [(TIMM, "single", 1000)]
    for words, said in (
        ([TIMM, "--classes", str(tmp_path / "none.txt")], "cannot be read"),
        ([str(web_run), "--task", "single"], "--task is for a network timm:NAME"),
        (["timm:nothing:none"], "nothing"),
    ):
        assert main(["serve", *words]) == 2
        assert said in capsys.readouterr().err
    names.write_text("one\ntwo\n")
    assert main(["serve", TIMM, "--classes", str(names)]) == 2
    assert "2 classes are named, and the network has 1000" in capsys.readouterr().err
