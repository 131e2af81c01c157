"""`dprotonet explain` and `dprotonet saliency` as a user types them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.data.birds import Birds

QUICK = ["--iterations", "1"]
SMALL = ["--model", "timm:test_resnet:none"]


@pytest.fixture(scope="module")
def run(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A copy, since explaining leaves heatmaps in the run folder."""
    return str(shutil.copytree(run_folder, tmp_path_factory.mktemp("explained") / "run"))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two birds of one file name, and a broken file."""
    folder = tmp_path_factory.mktemp("images")
    birds = Birds(species=4, per_species=1, split="test", size=64)
    paths = [folder / "a" / "bird.png", folder / "b" / "bird.png", folder / "broken.png"]
    for number, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(birds[number].image.permute(1, 2, 0).numpy()).save(path)
    paths[2].write_bytes(b"\x89PNG\r\n\x1a\n cut short")
    return [str(path) for path in paths]


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Stdout is one JSON object and nothing else."""
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def test_explain(run: str, images: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert main(["explain", run, *images[:2], "--out", out, "--top", "2", "--json", *QUICK]) == 0
    found = printed(capsys)["explanations"]
    assert [item["name"] for item in found] == images[:2]
    assert len({item["folder"] for item in found}) == 2  # although their files have one name
    for item in found:
        folder = Path(item["folder"])
        assert sum(row["contribution"] for row in item["rows"]) + item["rest"] == pytest.approx(item["logit"])
        assert Image.open(folder / item["sheet"]).width > 1000
        stored = json.loads((folder / "explanation.json").read_text())
        assert stored == {key: value for key, value in item.items() if key != "folder"}
        assert stored["settings"]["iterations"] == 1
        for row in item["rows"]:
            assert np.load(folder / row["files"]["heatmap"]).shape == (64, 64)
            assert row["passes"]["forward"] > 0
            assert 0 <= row["box"]["left"] < row["box"]["right"] <= 64
            names = {*row["files"].values(), *row["source_files"].values()}
            assert all((folder / name).is_file() for name in names)
            assert {"overlay", "blend", "masked", "binary", "binary_mask"} <= set(row["source_files"])
            assert np.load(folder / row["files"]["binary_mask"]).mean() == pytest.approx(
                row["kept"], abs=1e-5
            )


def test_explain_for_people_and_with_stored_sources(
    run: str, images: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["explain", run, images[0], "--out", str(tmp_path), "--top", "1", *QUICK]
    assert main(words) == 0
    assert "  looks like " in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    (item,) = printed(capsys)["explanations"]
    assert item["rows"][0]["source_passes"] == {"forward": 0, "backward": 0}


def test_a_broken_image_is_skipped(
    run: str, images: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, broken, out = images[0], images[2], ["--out", str(tmp_path / "out"), "--json", *QUICK]
    for command in (["explain", run], ["saliency", *SMALL], ["saliency", run]):
        assert main([*command, broken, good, *out]) == 0
        captured = capsys.readouterr()
        content = json.loads(captured.out)
        assert [item["name"] for item in content["explanations"]] == [good]
        assert list(content["skipped"]) == [broken]
        assert "broken.png" in captured.err
        assert main([*command, broken, *out]) == 2
        captured = capsys.readouterr()
        assert json.loads(captured.out)["explanations"] == []
        assert "no image could be read" in captured.err


def test_saliency(images: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    words = ["saliency", *SMALL, *images[:2], "--out", str(out), "--target", "12", *QUICK]
    assert main([*words, "--json"]) == 0
    content = printed(capsys)
    assert content["sheets"] == [str(out / "sheet.png")]
    assert len({item["folder"] for item in content["explanations"]}) == 2
    for item in content["explanations"]:
        folder = Path(item["folder"])
        maps, pictures = ("heatmap", "raw", "binary_mask"), ("overlay", "blend", "masked", "binary")
        assert item["files"] == {m: f"{m}.npy" for m in maps} | {p: f"{p}.png" for p in pictures}
        names = {*item["files"].values(), "explanation.json"}
        assert {path.name for path in folder.iterdir()} == names
        assert (item["label"], item["class_name"]) == (12, "house finch, linnet, Carpodacus mexicanus")
        assert Image.open(folder / "overlay.png").size == (64, 64)
        assert np.load(folder / "heatmap.npy").max() <= 1
    assert main(words) == 0
    assert "house finch" in capsys.readouterr().out


def test_boxes_are_also_in_pixels_of_the_image(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upright = Image.Exif()
    upright[ExifTags.Base.Orientation] = 6
    noise = np.random.default_rng(0).integers(0, 256, (300, 20, 3), dtype=np.uint8)
    image = str(tmp_path / "lying.jpg")
    Image.fromarray(noise).save(image, exif=upright)  # 20 × 300 in the file, 300 × 20 to be seen
    for command in (["saliency", run], ["saliency", *SMALL], ["explain", run]):
        assert main([*command, image, "--out", str(tmp_path / "out"), "--json", *QUICK]) == 0
        (item,) = printed(capsys)["explanations"]
        assert item["image_size"] == [20, 300]
        side = item["size"][0]
        for row in item.get("rows", [item]):
            box, place = row["box"], row["box_in_image"]
            assert place["right"] <= 300
            assert place["bottom"] <= 20
            for edge, length in (("left", 300), ("right", 300), ("top", 20), ("bottom", 20)):
                assert place[edge] == pytest.approx(box[edge] * length / side, abs=1)


@pytest.mark.parametrize("place", ["before the images", "as --model"])
def test_saliency_of_a_run(
    place: str, run: str, images: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [run, images[0]] if place == "before the images" else [images[0], "--model", run]
    assert main(["saliency", *given, "--out", str(tmp_path), "--method", "gradcam", "--json"]) == 0
    (item,) = printed(capsys)["explanations"]
    assert item["method"] == item["preset"] == "gradcam"
    assert item["class_name"] == item["likely"][0]["class_name"]


MISTAKES = [
    ("explain RUN --out OUT", "no image given"),
    ("explain RUN IMAGE", "--out"),
    ("explain OUT IMAGE --out OUT", "does not exist"),
    ("explain RUN IMAGE --out IMAGE", "is a file; name a folder"),
    ("saliency RUN IMAGE --out IMAGE", "is a file; name a folder"),
    ("explain RUN IMAGE --out OUT --top 0", "--top is 0"),
    ("explain RUN IMAGE --out OUT --preset slow", "'fast'"),
    ("predict RUN IMAGE --out IMAGE", "is a file; name a folder"),
    ("explain RUN IMAGE --out OUT --iterations 0", "dprotonet: --iterations is 0; it must be at least 1"),
    ("explain RUN IMAGE --out OUT --preset sampled --samples 1", "--samples is 1; it must be at least 2"),
    ("explain RUN IMAGE --out OUT --preset sampled --iterations 5", "has no value 'iterations'"),
    ("explain RUN IMAGE --out OUT --device quantum", "device quantum cannot be used"),
    ("saliency IMAGE --out OUT", "which network?"),
    ("saliency RUN --out OUT", "no image given"),
    ("saliency --model timm:test_resnet:none --out OUT", "no image given"),
    ("saliency --model resnet18 IMAGE --out OUT", "write timm:NAME"),
    ("saliency --model timm:resnet51:none IMAGE --out OUT", "resnet50"),
    ("saliency --model timm:test_resnet:none IMAGE --out OUT --target 1000", "has no class 1000"),
    ("saliency RUN IMAGE --out OUT --target 4", "its classes are 0 to 3"),
    ("saliency RUN IMAGE --out OUT --method lemon", "'mdm'"),
    ("saliency RUN IMAGE --out OUT --preset slow", "'fast'"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_mistakes_are_one_line_and_exit_2(
    words: str,
    message: str,
    run: str,
    images: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    places = {"RUN": run, "IMAGE": images[0], "OUT": str(out)}
    assert main([places.get(word, word) for word in words.split()]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0
    assert not out.exists()


def test_explain_one_class_and_not_another(
    run: str, images: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["explain", run, images[0], "--versus", "runner-up", "--out", str(tmp_path / "out"), *QUICK]
    assert main([*words, "--top", "2", "--json"]) == 0
    (item,) = printed(capsys)["explanations"]
    likely = sorted(item["probabilities"], key=lambda name: -item["probabilities"][name])
    assert [item["explained"], item["versus"]] == likely[:2]
    assert item["difference"] == pytest.approx(item["explained_logit"] - item["versus_logit"])
    assert sum(row["difference"] for row in item["all_rows"]) == pytest.approx(item["difference"])
    shown = [row["difference"] for row in item["rows"]]
    assert min(map(abs, shown)) >= max(abs(row["difference"]) for row in item["all_rows"][2:])
    assert sum(shown) + item["folded"]["ahead"] + item["folded"]["behind"] == pytest.approx(
        item["difference"]
    )
    for row in item["rows"]:
        own = row["own"] if row["own"] is not None else row["other"]
        assert row["marks"][str(own)]["reliability_word"] == row["reliability_word"]
        assert row["place_warning"] == ""  # nobody has measured a limit
    folder = Path(item["folder"])
    assert np.load(folder / item["files"]["heatmap"]).shape == (64, 64)
    assert np.load(folder / item["rows"][1]["files"]["heatmap"]).shape == (64, 64)
    assert Image.open(folder / item["sheet"]).width > 1000
    named = ["explain", run, images[0], "--out", str(tmp_path / "named"), *QUICK]
    assert main([*named, "--versus", item["versus"]]) == 0
    text = capsys.readouterr().out
    assert f"{item['explained']} (" in text.splitlines()[0]
    assert text.splitlines()[0].endswith(f"not {item['versus']}")
    assert item["sentence"] in text
    assert main([*named, "--versus", item["versus"][:-1]]) == 2
    said = capsys.readouterr().err
    assert f"did you mean '{item['versus']}'" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("command", ["explain", "saliency"])
def test_an_image_of_the_class_compared_with_does_not_stop_the_others(
    command: str, run: str, images: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = images[:2]
    answers = dp.load(run).predict_many(good)
    versus = answers[0].class_name
    likely = sorted(answers[0].probabilities, key=lambda name: -answers[0].probabilities[name])
    more = QUICK if command == "explain" else ["--method", "gradcam"]
    words = [command, run, *good, "--versus", versus, "--out", str(tmp_path / "out"), *more, "--json"]
    assert main(words) == 0
    out, said = capsys.readouterr()
    found = json.loads(out)["explanations"]
    assert [item["versus_replaced"] for item in found] == [one.class_name == versus for one in answers]
    assert found[0]["versus"] == likely[1]
    count = sum(one.class_name == versus for one in answers)
    assert f"is {versus} itself, so it is compared with {likely[1]}, the likeliest other class" in said
    assert f"{count} of {len(good)} could not be compared with {versus} itself" in said


def test_saliency_of_one_class_rather_than_another(
    run: str, images: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "out"), "--json"]
    assert main(["saliency", run, images[0], "--versus", "runner-up", "--method", "gradcam", *out]) == 0
    (item,) = printed(capsys)["explanations"]
    assert item["versus"] == item["likely"][1]["class_name"]
    assert "less that of class" in item["node"]
