"""The API: predictions with evidence that adds up, places and maps, the run's own data, what if."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image

import dprotonet as dp
from dprotonet.data.birds import Birds
from dprotonet.experiment.runs.familiarity import warning_of
from dprotonet.experiment.runs.run_folder import unknown_source
from dprotonet.figures.style import sentence
from dprotonet.web.app import create_app
from dprotonet.web.service import Service, ServiceSettings
from web_server import HERE, QUICK, sent, until

BIRD = Birds(species=4, per_species=3, split="test", size=64)[1].image


def ended(client: TestClient, job: str) -> dict[str, object]:
    """How a job ended."""
    until(lambda: client.get(f"/api/jobs/{job}").json()["state"] in ("done", "failed", "cancelled"))
    found: dict[str, object] = client.get(f"/api/jobs/{job}").json()
    return found


def test_an_upload_is_predicted_as_the_model_predicts(
    client: TestClient, model: dp.Model, bird: bytes
) -> None:
    found, wanted = sent(client, bird), model.predict(BIRD)
    assert (found["predicted"], found["class_name"]) == (wanted.label, wanted.class_name)
    shares = {one["class_name"]: one["probability"] for one in found["probabilities"]}
    assert shares == pytest.approx(dict(wanted.probabilities), abs=1e-6)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    for row, item in zip(found["rows"], wanted.evidence[:3], strict=True):
        assert (row["prototype"], row["source"]) == (item.prototype, item.source)
        assert row["points"] == pytest.approx(row["similarity"] * row["weight"])
        assert row["points"] == pytest.approx(item.contribution)
    assert sum(row["points"] for row in found["rows"]) + found["rest"] == pytest.approx(found["score"])
    assert found["rest_for"] + found["rest_against"] == pytest.approx(found["rest"])
    assert found["score"] == pytest.approx(wanted.logit)
    assert found["others"] == len(model.prototypes) - 3
    assert (found["familiar"], found["distance"]) == (wanted.familiar, pytest.approx(wanted.distance))
    assert found["warning"] == sentence(warning_of(wanted.distance))


@pytest.mark.parametrize("off", [[], [0, 5]])
def test_why_not_and_what_if(client: TestClient, model: dp.Model, bird: bytes, off: list[int]) -> None:
    """Against a slow sum over prototypes."""
    image = sent(client, bird)["image"]
    scores = model.answer(BIRD).scores.tolist()
    weight = model.network.head.weight.tolist()
    for label in range(len(model.classes)):
        wanted = sum(
            s * w
            for number, (s, w) in enumerate(zip(scores, weight[label], strict=True))
            if number not in off
        )
        found = client.post(
            f"/api/images/{image}/evidence", json={"label": label, "off": off, "top": 8}
        ).json()
        assert found["score"] == pytest.approx(wanted)
        assert found["label"] == label
        assert {row["prototype"] for row in found["rows"]} == set(range(8)) - set(off)
        assert found["others"] == 0
    logits = model.answer(BIRD).logits(off)
    assert found["predicted"] == int(logits.argmax())
    assert found["predicted_score"] == pytest.approx(float(logits.max()))


def test_places(client: TestClient, bird: bytes) -> None:
    found = sent(client, bird)
    base, numbers = f"/api/images/{found['image']}", [row["prototype"] for row in found["rows"]]
    early = client.get(f"{base}/sheet", params={"label": found["label"]})
    assert early.status_code == 409
    assert f"not known yet: {numbers[0]}, " in early.json()["detail"]
    assert client.get(f"{base}/places/{numbers[0]}").status_code == 409
    assert client.get(f"{base}/places/{numbers[0]}/image").status_code == 409
    assert client.get(f"{base}/places/99/image").status_code == 404  # there never will be
    job = client.post(f"{base}/places", json={"prototypes": numbers})
    assert job.status_code == 202
    assert ended(client, job.json()["job"])["state"] == "done"
    for number in numbers:
        for where in ("image", "source"):
            answer_ = client.get(f"{base}/places/{number}/{where}")
            values = np.load(io.BytesIO(answer_.content), allow_pickle=False)
            assert (values.shape, values.dtype) == ((64, 64), np.float32)
            assert np.isfinite(values).all()
        facts = client.get(f"{base}/places/{number}").json()
        assert facts["image"]["passes"]["forward"] > 0
        assert 0 <= facts["image"]["box"]["left"] < facts["image"]["box"]["right"] <= 64
    sheet = client.get(f"{base}/sheet", params={"label": found["label"]})
    assert Image.open(io.BytesIO(sheet.content)).width > 1000


def test_places_are_those_of_explain(client: TestClient, model: dp.Model, bird: bytes) -> None:
    found = sent(client, bird)
    (wanted,) = model.explain(BIRD, top=1, preset=QUICK)
    number = wanted.rows[0].item.prototype
    job = client.post(f"/api/images/{found['image']}/places", json={"prototypes": [number]}).json()["job"]
    assert ended(client, job)["state"] == "done"
    content = client.get(f"/api/images/{found['image']}/places/{number}/image").content
    assert torch.allclose(torch.from_numpy(np.load(io.BytesIO(content))), wanted.rows[0].input.raw, atol=1e-5)


def test_class_maps_by_every_method(client: TestClient, service: Service, bird: bytes) -> None:
    image = sent(client, bird)["image"]
    facts = client.get("/api/run").json()
    assert {"mdm", "gradcam", "similarity"} <= set(facts["methods"])
    assert facts["decoder"].startswith("fast")
    for method in set(service.methods) - {"rise", "scorecam", "ablationcam"}:  # hundreds of passes each
        job = client.post(f"/api/images/{image}/maps", json={"label": 1, "method": method}).json()["job"]
        assert ended(client, job)["state"] == "done"
        values = np.load(io.BytesIO(client.get(f"/api/images/{image}/maps/1/{method}").content))
        assert values.shape == (64, 64)
        assert client.get(f"/api/images/{image}/maps/0/{method}").status_code == 409
    for never in ("maps/4/gradcam", "maps/0/guesswork"):
        assert client.get(f"/api/images/{image}/{never}").status_code == 404


def test_events_tell_of_growing_maps_and_the_end(client: TestClient, bird: bytes) -> None:
    found = sent(client, bird)
    job = client.post(f"/api/images/{found['image']}/places", json={"prototypes": [0, 7]}).json()["job"]
    with client.stream("GET", f"/api/jobs/{job}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        news = [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: ")]
    assert news[-1]["state"] == "done"
    names = {name for item in news for name in item["maps"]}
    assert {"image/0", "image/7"} <= names
    sides = {item["side"] for one in news for item in one["maps"].values()}
    assert sides == {56}
    done = [item["done"] for item in news if item["total"]]
    assert done == sorted(done)


def test_test_images(client: TestClient, service: Service) -> None:
    until(lambda: client.get("/api/samples").json()["ready"])
    found = client.get("/api/samples", params={"label": 2, "limit": 2}).json()
    assert found["total"] == 3
    assert [one["label"] for one in found["samples"]] == [2, 2]
    index = found["samples"][0]["index"]
    looked = client.post(f"/api/samples/{index}").json()
    assert looked["truth"] == 2
    shown = Image.open(io.BytesIO(client.get(f"/api/samples/{index}/picture").content))
    assert shown.size == (64, 64)
    assert client.post("/api/samples/12").status_code == 404
    assert client.get("/api/training/99999/picture").status_code == 404


def test_data_that_is_gone(model: dp.Model, web_run: Path, tmp_path: Path) -> None:
    """Uploads work, test images say why they do not."""
    copy = shutil.copytree(web_run, tmp_path / "moved")
    text = (copy / "config.toml").read_text().replace('data = "birds"', f'data = "folder:{tmp_path}/gone"')
    (copy / "config.toml").write_text(text)
    service = Service(dp.load(copy))
    client = TestClient(create_app(service), base_url=HERE)
    until(lambda: client.get("/api/samples").json()["ready"])
    found = client.get("/api/samples").json()
    assert found["total"] == 0
    assert "gone" in found["reason"]
    assert client.post("/api/samples/0").status_code == 400
    client.post("/api/what-if", json={"off": []})
    until(lambda: client.post("/api/what-if", json={"off": []}).json()["state"] == "failed")
    service.close()


def test_prototypes_and_their_nearest_images(client: TestClient, model: dp.Model) -> None:
    until(lambda: client.get("/api/prototypes").json()["state"] == "ready")
    found = client.get("/api/prototypes").json()["prototypes"]
    assert [one["prototype"] for one in found] == list(range(len(model.prototypes)))
    for one in found:
        own = sum(near["label"] == one["label"] for near in one["nearest"][: one["among"]])
        assert one["purity"] == pytest.approx(own / one["among"])
    index = found[0]["nearest"][0]["index"]
    assert client.get(f"/api/training/{index}/picture").status_code == 200
    assert client.get("/api/prototypes/0/picture").headers["content-type"] == "image/png"
    assert client.get("/api/prototypes/8/picture").status_code == 404


def test_prototypes_come_in_pages_and_by_class(client: TestClient, model: dp.Model) -> None:
    until(lambda: client.get("/api/prototypes").json()["state"] == "ready")
    whole = client.get("/api/prototypes").json()
    assert whole["listed"] == len(whole["prototypes"]) == len(model.prototypes) == 8
    pages = [client.get(f"/api/prototypes?offset={first}&limit=3").json() for first in (0, 3, 6, 9)]
    assert [len(page["prototypes"]) for page in pages] == [3, 3, 2, 0]
    assert [one for page in pages for one in page["prototypes"]] == whole["prototypes"]
    assert {page["listed"] for page in pages} == {8}
    own = client.get("/api/prototypes?label=2").json()
    assert own["prototypes"] == [one for one in whole["prototypes"] if one["label"] == 2]
    assert own["listed"] == 2
    assert client.get("/api/prototypes?label=4").status_code == 404
    for wrong in ("limit=0", "limit=1001", "offset=-1"):
        assert client.get(f"/api/prototypes?{wrong}").status_code == 422


def test_more_prototypes_may_be_off_than_a_large_run_has(client: TestClient) -> None:
    until(lambda: client.post("/api/what-if", json={"off": []}).json()["state"] == "ready")
    asked = {"off": [3] * 50_000}
    assert (
        client.post("/api/what-if", json=asked).json()
        == client.post("/api/what-if", json={"off": [3]}).json()
    )
    assert client.post("/api/what-if", json={"off": [3] * 100_001}).status_code == 422


def test_accuracy_with_prototypes_off(client: TestClient, model: dp.Model) -> None:
    until(lambda: client.post("/api/what-if", json={"off": []}).json()["state"] == "ready")
    found = client.post("/api/what-if", json={"off": [0, 1]}).json()
    data = Birds(species=4, per_species=3, split="test", size=64)
    samples = [data[index] for index in range(len(data))]
    for name, off in (("before", ()), ("accuracy", (0, 1))):
        right = [model.answer(one.image).label(off) == one.label for one in samples]
        assert found[name] == pytest.approx(sum(right) / len(right))
    assert found["images"] == len(data)
    assert client.post("/api/what-if", json={"off": [8]}).status_code == 404


def test_a_cleaned_run_beside_the_run(client: TestClient, web_run: Path) -> None:
    folders = set()
    for _ in range(2):
        job = client.post("/api/cleaned", json={"reasons": {"3": "background"}})
        assert job.status_code == 202
        found = ended(client, job.json()["job"])
        assert found["state"] == "done"
        folder = web_run.with_name("birds-cleaned") / found["result"]["folder"]  # type: ignore[index]
        folders.add(folder)
        assert len(dp.load(folder).prototypes) == 7
        assert "background" in (folder / "cleaned.json").read_text()
    assert len(folders) == 2
    assert len(dp.load(web_run).prototypes) == 8


@pytest.mark.parametrize(
    ("reasons", "status"),
    [
        ({}, 400),
        ({"0": "background", "1": "artefact"}, 400),
        ({"8": "other"}, 404),
        ({"0": "ugly"}, 422),
        ({"../x": "other"}, 422),
    ],
)
def test_what_cannot_be_cleaned(client: TestClient, reasons: dict[str, str], status: int) -> None:
    assert client.post("/api/cleaned", json={"reasons": reasons}).status_code == status


def test_an_imported_run_has_evidence_and_no_places(model: dp.Model, bird: bytes) -> None:
    """Nobody kept the training images of its prototypes."""
    records = [unknown_source(item.prototype, item.class_name) for item in model.prototypes]
    imported = dp.Model(model.network, config=model.config, classes=model.classes, prototypes=records)
    imported.folder = model.folder
    service = Service(imported, ServiceSettings(preset=QUICK))
    client = TestClient(create_app(service), base_url=HERE)
    assert client.get("/api/run").json()["sources"] is False
    found = sent(client, bird)
    assert found["rows"]
    asked = client.post(f"/api/images/{found['image']}/places", json={"prototypes": [0]})
    for refused in (asked, client.get("/api/prototypes/0/picture")):
        assert refused.status_code == 400
        assert "imported" in refused.json()["detail"]
    service.close()


def test_one_class_and_not_another(client: TestClient, model: dp.Model, bird: bytes) -> None:
    """Both sides add up to both scores, the nearest images are of both classes, and there is a map."""
    found = sent(client, bird)
    image, label = found["image"], found["predicted"]
    versus = found["probabilities"][1]["label"]
    asked = {"label": label, "versus": versus, "top": 2}

    def told() -> dict[str, object]:
        content: dict[str, object] = client.post(f"/api/images/{image}/contrast", json=asked).json()
        return content

    until(lambda: told()["nearest_state"] == "ready")
    compared = client.post(f"/api/images/{image}/contrast", json=asked).json()
    contrast = model.answer(BIRD).contrast(label, versus)
    assert compared["sentence"] == contrast.sentence
    assert compared["score"] - compared["versus_score"] == pytest.approx(contrast.difference)
    shown = [row["difference"] for row in compared["differing"]]
    total = sum(shown) + compared["others_for"] + compared["others_against"]
    assert total == pytest.approx(contrast.difference)
    assert [row["points"] - row["versus_points"] for row in compared["differing"]] == pytest.approx(shown)
    assert [near["label"] for near in compared["nearest"]] == [label, versus]
    train = model.splits().train
    assert [train.labels[near["index"]] for near in compared["nearest"]] == [label, versus]
    for method in ("similarity", "contrast"):
        wanted = {"label": label, "versus": versus, "method": method}
        job = client.post(f"/api/images/{image}/maps", json=wanted).json()["job"]
        assert ended(client, job)["state"] == "done"
        drawn = client.get(f"/api/images/{image}/maps/{label}/{method}?versus={versus}")
        assert np.load(io.BytesIO(drawn.content)).shape == (64, 64)
    assert client.get(f"/api/images/{image}/maps/{label}/similarity").status_code == 409
    assert client.get(f"/api/images/{image}/maps/{label}/contrast").status_code == 404  # of two classes only
    same = client.post(f"/api/images/{image}/contrast", json={"label": label, "versus": label})
    assert same.status_code == 400
    assert "cannot be compared with itself" in same.json()["detail"]
