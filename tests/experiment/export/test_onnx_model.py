"""An exported model predicts as the run does, and its heatmaps are found by asking only."""

import contextlib
import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from PIL import ExifTags, Image
from tests.experiment.export.conftest import SIZE, Exported, images, untrained

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.experiment.transfer.export.card import KEY
from dprotonet.experiment.transfer.export.onnx_model import OnnxModel
from dprotonet.experiment.transfer.export.write import export


@pytest.fixture(scope="module")
def model(exported: Exported) -> OnnxModel:
    return OnnxModel.load(exported.onnx)


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "noise.png"
    Image.fromarray(images(1)[0].permute(1, 2, 0).numpy()).save(path)
    return path


def test_predictions_are_those_of_the_run(model: OnnxModel) -> None:
    pixels = list(images(3))
    for found, wanted in zip(
        model.predict_many(pixels), untrained("spatial").predict_many(pixels), strict=True
    ):
        assert found.class_name == wanted.class_name
        assert found.probability == pytest.approx(wanted.probability, abs=1e-5)
        assert found.logit == pytest.approx(wanted.logit, abs=1e-4)
        assert found.familiar == wanted.familiar
        assert found.distance == pytest.approx(wanted.distance, rel=1e-4)
        by_number = {item.prototype: item for item in wanted.evidence}
        for item in found.evidence:
            same = by_number[item.prototype]
            assert (item.class_name, item.source) == (same.class_name, same.source)
            assert item.weight == pytest.approx(same.weight, abs=1e-4)
            assert item.contribution == pytest.approx(same.contribution, abs=1e-4)
    assert model.predict_many([]) == []


@pytest.fixture(scope="module")
def parts_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parts") / "model.onnx"
    export(untrained("parts"), onnx=path)
    return path


def test_leads_and_the_order_of_rows_are_those_of_the_run(parts_file: Path) -> None:
    pixels = list(images(5))
    by_points = []
    for found, wanted in zip(
        OnnxModel.load(parts_file).predict_many(pixels), untrained("parts").predict_many(pixels), strict=True
    ):
        assert [item.prototype for item in found.evidence] == [item.prototype for item in wanted.evidence]
        assert [item.rival for item in found.evidence] == [item.rival for item in wanted.evidence]
        assert [item.ahead for item in found.evidence] == [item.ahead for item in wanted.evidence]
        for item, same in zip(found.evidence, wanted.evidence, strict=True):
            assert (item.lead is None) == (item.class_name != found.class_name)
            assert item.lead == pytest.approx(same.lead, abs=1e-4)
            assert item.region == same.region
        by_points.append(found.evidence == by_contribution(found.evidence))
    assert not all(by_points)  # or this test could not tell


def test_older_files_of_parts_load_and_sort_by_contribution(parts_file: Path, tmp_path: Path) -> None:
    proto = onnx.load(parts_file)
    (card,) = [item for item in proto.metadata_props if item.key == KEY]
    content = json.loads(card.value)
    del content["parts"]
    content["familiarity"] = None
    for name in ("strangeness", "rival_contributions"):
        assert content["outputs"].pop() == proto.graph.output.pop().name == name
    card.value = json.dumps(content)
    onnx.save(proto, tmp_path / "old.onnx")
    (found,) = OnnxModel.load(tmp_path / "old.onnx").predict_many(list(images(1)))
    assert all((item.lead, item.rival, item.ahead) == (None, "", "") for item in found.evidence)
    assert found.evidence == by_contribution(found.evidence)


def by_contribution(items: tuple[EvidenceItem, ...]) -> tuple[EvidenceItem, ...]:
    return tuple(sorted(items, key=lambda item: -item.contribution))


def test_a_network_without_parts_has_no_leads(model: OnnxModel) -> None:
    (found,) = model.predict_many(list(images(1)))
    assert {item.ahead for item in found.evidence} == {""}
    assert found.evidence == by_contribution(found.evidence)


def test_the_command_says_how_far_a_row_is_ahead(
    parts_file: Path, picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["explain", str(parts_file), str(picture), "--out", str(tmp_path), "--samples", "20"]
    assert main([*words, "--top", "1"]) == 0
    first = untrained("parts").predict(picture).evidence[0]
    assert first.ahead
    assert f"({first.ahead})" in capsys.readouterr().out
    (told,) = tmp_path.glob("*/explanation.json")
    (row,) = json.loads(told.read_text("utf-8"))["rows"]
    assert (row["prototype"], row["ahead"]) == (first.prototype, first.ahead)


def test_what_the_decoder_asks_is_what_the_network_answers(model: OnnxModel) -> None:
    """Masked images are masked as the run's own decoder masks them: zero is the mean, not black."""
    run, pixels = untrained("spatial"), images(2)
    masked = run.normalise(pixels) * torch.rand(2, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = run.prototyped.evidence(masked)
    answers = model._answers(masked.numpy())
    np.testing.assert_allclose(answers[:, :4], wanted.logits.softmax(1).numpy(), atol=1e-4)
    np.testing.assert_allclose(answers[:, 4:], wanted.scores.numpy(), atol=1e-4)
    torch.testing.assert_close(model._normalised(pixels[0].float() / 255), run.normalise(pixels[0]))


def test_the_command_explains_a_file(
    exported: Exported, picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["explain", str(exported.onnx), str(picture), "--out", str(tmp_path / "out"), "--samples", "20"]
    assert main([*words, "--top", "2", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    (item,) = content["explanations"]
    assert "no source images" in content["note"]
    assert len(item["rows"]) == 2
    assert sum(row["contribution"] for row in item["rows"]) + item["rest"] == pytest.approx(item["logit"])
    assert item["settings"]["samples"] == 20
    assert item["size"] == item["image_size"] == [SIZE, SIZE]
    assert all(found["box_in_image"] == found["box"] for found in (item, *item["rows"]))
    folder = Path(item["folder"])
    stems = ["class", *(row["files"] for row in item["rows"])]
    for stem in stems:
        heatmap = np.load(folder / f"{stem}-heatmap.npy")
        assert heatmap.shape == (SIZE, SIZE)
        assert 0 <= heatmap.min() <= heatmap.max() <= 1
        assert (folder / f"{stem}-overlay.png").is_file()
        told = json.loads((folder / f"{stem}-explanation.json").read_text("utf-8"))["files"]
        assert {"heatmap", "binary_mask", "blend", "masked", "binary"} <= set(told)
        assert all((folder / name).is_file() for name in told.values())
    assert Image.open(folder / item["sheet"]).width > 200
    assert main(words) == 0
    captured = capsys.readouterr()
    assert "looks like" in captured.out
    assert "no source images" in captured.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--preset fast", "needs gradients"),
        ("--device cpu", "run folders"),
        ("--iterations 3", "no value 'iterations'"),
        ("--top 0", "--top is 0"),
    ],
)
def test_options_that_do_not_suit_a_file(
    exported: Exported,
    picture: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: str,
    message: str,
) -> None:
    given = ["explain", str(exported.onnx), str(picture), "--out", str(tmp_path), *words.split()]
    assert main(given) == 2
    assert message in capsys.readouterr().err


def test_a_file_that_is_none(exported: Exported, tmp_path: Path) -> None:
    with pytest.raises(dp.UserError, match="does not exist"):
        OnnxModel.load(tmp_path / "model.onnx")
    (tmp_path / "model.onnx").write_bytes(exported.onnx.read_bytes()[:500])
    with pytest.raises(dp.UserError, match="cannot be read as ONNX"):
        OnnxModel.load(tmp_path / "model.onnx")
    proto = onnx.load(exported.onnx)
    proto.ir_version = 99
    onnx.save(proto, tmp_path / "model.onnx")
    with pytest.raises(dp.UserError, match=r"as ONNX \(.*IR version"):
        OnnxModel.load(tmp_path / "model.onnx")
    proto = onnx.load(exported.onnx)
    del proto.metadata_props[:]
    onnx.save(proto, tmp_path / "model.onnx")
    with pytest.raises(dp.UserError, match="not written by dprotonet export"):
        OnnxModel.load(tmp_path / "model.onnx")


def test_a_program_that_is_not_that_of_its_card(exported: Exported, tmp_path: Path) -> None:
    proto = onnx.load(exported.onnx)
    (card,) = [item for item in proto.metadata_props if item.key == KEY]
    content = json.loads(card.value)
    card.value = json.dumps({**content, "prototypes": content["prototypes"][1:]})
    onnx.save(proto, tmp_path / "model.onnx")
    with pytest.raises(dp.UserError, match="another scores than its card says"):
        OnnxModel.load(tmp_path / "model.onnx").predict_many(list(images(1)))
    card.value = json.dumps(content)
    proto.graph.input[0].name = "pictures"
    onnx.save(proto, tmp_path / "model.onnx")
    with pytest.raises(dp.UserError, match=r"cannot be read|other inputs"):
        OnnxModel.load(tmp_path / "model.onnx")


def test_a_program_that_fails(model: OnnxModel) -> None:
    with pytest.raises(dp.UserError, match="cannot be run"):
        model.outputs(torch.rand(1, 3, 7, 7))


def test_without_onnxruntime(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(dp.UserError, match=r"pip install 'dprotonet\[onnx\]'"):
        OnnxModel.load(exported.onnx)


@pytest.mark.parametrize("kind", ["plain", "lying", "16 bits"])
def test_the_python_of_the_page_runs(
    kind: str, exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "export.md"
    code, by_package = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "birds.onnx").write_bytes(exported.onnx.read_bytes())
    awkward_image(kind).save(tmp_path / "bird.png", exif=lying() if kind == "lying" else b"")
    monkeypatch.chdir(tmp_path)
    printed, found = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        exec(code, found)
    pixels = untrained("spatial").pixels("bird.png").numpy()[None].astype(np.float32) / 255
    if kind != "16 bits":  # of which the page says that the short way is not for them
        wanted = untrained("spatial").predict("bird.png")
        np.testing.assert_array_equal(found["images"], pixels)
        assert wanted.class_name in printed.getvalue().splitlines()[:2]
        assert ("unlike the training images" in printed.getvalue()) is (wanted.familiar is False)
    exec(by_package, found)
    np.testing.assert_array_equal(found["images"], pixels)


def awkward_image(kind: str) -> Image.Image:
    pixels = images(1)[0].permute(1, 2, 0).numpy()[:40]
    return Image.fromarray(pixels[..., 0].astype(np.uint16) * 16 if kind == "16 bits" else pixels)


def lying() -> Image.Exif:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    return exif
