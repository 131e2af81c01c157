"""The commands as a user types them: what they print, what they leave, how they fail."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from dprotonet.cli.main import main
from dprotonet.cli.parse import one_line
from dprotonet.data.birds import Birds
from dprotonet.percent import percent
from heavy_images import png

TINY = [
    "--species",
    "4",
    "--train-per-species",
    "6",
    "--val-per-species",
    "3",
    "--test-per-species",
    "3",
    "--image-size",
    "64",
    "--backbone",
    "timm:test_resnet:none",
    "--dimension",
    "16",
    "--masks",
    "12",
    "--prototypes-per-class",
    "2",
    "--epochs",
    "2",
    "--warm-epochs",
    "1",
    "--push-every",
    "2",
    "--last-layer-epochs",
    "1",
    "--batch-size",
    "8",
    "--push-images",
    "2",
]


def make_folder(root: Path, classes: int = 2, per_class: int = 4) -> Path:
    """A folder of images as a user has one, with a corrupt file among them."""
    for split in ("train", "test"):
        birds = Birds(species=classes, per_species=per_class, split=split, size=64)
        for index in range(len(birds)):
            path = root / split / birds.classes[birds.labels[index]] / f"{index:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(birds[index].image.permute(1, 2, 0).numpy()).save(path)
    (root / "train" / birds.classes[0] / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n cut short")
    return root


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("folder"))


def test_folder_to_prediction(images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    assert main(["train", "--data", f"folder:{images}", "--out", run, *TINY]) == 0
    assert "broken.png" in capsys.readouterr().err
    assert main(["evaluate", run, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["images"] == 8
    assert 0 <= summary["accuracy"] <= 1
    assert 0 <= summary["auroc"] <= 1  # two classes
    recalls = list(summary["per_class"].values())
    assert [summary["specificity"], summary["sensitivity"]] == recalls
    first, second = summary["per_class"]
    assert summary["positive"] == second
    assert main(["evaluate", run, "--positive", first]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"sensitivity (to {first})" in shown
    assert f"specificity (for {first})" in shown
    assert f"positive class: {first} (asked for)" in shown
    kept = json.loads((tmp_path / "run" / "evaluation" / "test.json").read_text(encoding="utf-8"))
    assert kept["positive"] == first
    assert [kept["sensitivity"], kept["specificity"]] == recalls
    assert kept["auroc"] == summary["auroc"]
    assert main(["evaluate", run, "--positive", "nobody"]) == 2
    assert f"the classes are {first} and {second}" in capsys.readouterr().err
    assert sum(map(sum, summary["confusion"])) == 8
    assert Path(summary["picture"]).is_file()
    image = str(next((images / "test").rglob("*.png")))
    assert main(["predict", run, image, "--json", "--top", "2", "--out", str(tmp_path / "pictures")]) == 0
    (prediction,) = json.loads(capsys.readouterr().out)["predictions"]
    points = [item["contribution"] for item in prediction["evidence"]]
    assert len(points) == 2
    assert sum(points) + prediction["rest"] == pytest.approx(prediction["logit"])
    (picture,) = (tmp_path / "pictures").glob("*.png")
    two = Image.open(picture).height
    assert main(["predict", run, image, "--top", "4", "--out", str(tmp_path / "more")]) == 0
    assert Image.open(tmp_path / "more" / picture.name).height > two


def test_evaluate_and_predict_for_people(
    run_folder: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(run_folder), "--split", "val", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "balanced accuracy" in text
    assert "sensitivity" not in text  # four classes
    assert main(["evaluate", str(run_folder), "--positive", "x"]) == 2
    assert "is for two classes, the run has 4" in capsys.readouterr().err
    assert (tmp_path / "val-confusion.png").is_file()
    assert main(["predict", str(run_folder), str(next((images / "test").rglob("*.png")))]) == 0
    text = capsys.readouterr().out
    assert "looks like" in text
    assert "logit" in text
    assert text.splitlines()[0].endswith(" %)")  # a long path does not tear off the answer
    assert "…" not in text  # names of training images are whole


def test_frozen_parts_are_predicted_with_their_leads(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = TINY.index("--masks")
    words = [*TINY[:place], *TINY[place + 2 : TINY.index("--last-layer-epochs")], "--augmentations", "1"]
    out, cache = str(tmp_path / "run"), str(tmp_path / "cache")
    assert main(["train", "--out", out, "--mode", "frozen", *words, "--cache", cache]) == 0
    capsys.readouterr()
    assert main(["predict", out, str(next((images / "test").rglob("*.png"))), "--top", "7"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"= points ┃ +lead ┃", text)
    assert "lead: points ahead of" in text
    assert "1 other " in text


def test_one_broken_image_is_reported_and_skipped(
    run_folder: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, broken = str(next((images / "test").rglob("*.png"))), str(next(images.rglob("broken.png")))
    assert main(["predict", str(run_folder), broken, good, "--json"]) == 0
    captured = capsys.readouterr()
    content = json.loads(captured.out)
    assert [item["name"] for item in content["predictions"]] == [good]
    assert list(content["skipped"]) == [broken]
    assert "broken.png" in captured.err
    assert main(["predict", str(run_folder), broken]) == 2


def test_the_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo = ["demo", "--out", str(tmp_path / "demo"), "--cache", str(tmp_path / "cache"), "--workers", "0"]
    demo += ["--augmentations", "1"]
    assert main([*demo, *TINY, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert 0 <= results["accuracy"] <= 1
    assert 0 <= results["probe_accuracy"] <= 1
    assert 0 <= results["discriminant_accuracy"] <= 1
    assert set(results["pictures"]) == {"prototypes", "learning curve", "confusion matrix", "explanations"}
    for path in results["pictures"].values():
        assert Image.open(path).width > 200
    assert "looks like" in Path(results["report"]).read_text(encoding="utf-8")
    assert main([*demo, *TINY]) == 0  # a second demo replaces the first
    shown = f"discriminant {percent(results['discriminant_accuracy'])} (test accuracy)"
    assert f"linear probe {percent(results['probe_accuracy'])}, {shown}" in capsys.readouterr().out


def test_the_demo_shows_and_names_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unless masks are asked for, as the other tests do."""
    place = TINY.index("--masks")
    words = [*TINY[:place], *TINY[place + 2 :], "--augmentations", "1", "--workers", "0", "--json"]
    out = tmp_path / "demo"
    assert main(["demo", "--out", str(out), "--cache", str(tmp_path / "cache"), *words]) == 0
    results = json.loads(capsys.readouterr().out)
    assert Image.open(results["pictures"]["parts"]).width > 200
    names = json.loads((out / "part_names.json").read_text(encoding="utf-8"))["names"]
    assert len(names) == 8  # two parts of four species
    shares = [names[str(number)]["share"] for number in range(8)]
    assert all(share is None or share >= 2 / 3 for share in shares)
    lettered = {names[str(number)]["name"] for number in (0, 2, 4, 6) if shares[number] is None}
    assert lettered <= {"A"}  # the first part of each species


def test_config_file_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[network]\nmasks = 7\n[training]\nseed = 3\n")
    command = ["train", "--config", str(file), "--out", str(tmp_path / "run"), *TINY, "--masks", "5"]
    assert main(command) == 0
    text = (tmp_path / "run" / "config.toml").read_text()
    assert "masks = 5" in text  # the flag wins
    assert "seed = 3" in text


def test_resume_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    assert main(["train", "--out", out, *TINY]) == 0
    assert main(["train", "--out", out, "--resume", "--epochs", "4"]) == 0
    assert '"epoch": 4' in (tmp_path / "run" / "metrics.jsonl").read_text()
    assert main(["train", "--out", out, "--resume", "--masks", "3"]) == 2
    assert "cannot change masks" in capsys.readouterr().err


MISTAKES = [
    ("nonsense", "unknown command 'nonsense'"),
    ("trian", "did you mean 'train'"),
    ("train --out OUT --data folder:/no/such/place", "/no/such/place"),
    ("train --out OUT --data cub", "use cub:PATH"),
    ("train --out OUT --data cup:.", "did you mean 'cub'?"),
    ("train --out OUT --backbone timm:resnet51:none", "resnet50"),
    ("train --out OUT --backbone timm:resnet18:packaged", "packaged"),
    ("train --out OUT --backbone timm:resnet18:/no/file.pth", "/no/file.pth"),
    ("train --out OUT --species 1", "species"),
    ("train --out OUT --epochs 0", "--epochs is 0"),
    ("train --out OUT --rate-head 0", "--rate-head"),
    ("train --out OUT --recipe masks --prototypes-per-class 100", "fewer than its 100 prototypes"),
    ("train --out OUT --regions patches --patch 9 9", "do not fit"),
    ("train --out OUT --mask-style file", "--mask-file"),
    ("train --out OUT --config /no/such.toml", "does not exist"),
    ("train --out OUT --resume", "not a run folder"),
    ("train --out OUT --resume --overwrite", "give one of them"),
    ("train --out OUT --epohcs 3", "Perhaps you meant: --epochs"),
    ("train --out OUT --mode both", "'frozen'"),
    ("train --out OUT --epochs abc", "--epochs"),
    ("train", "--out"),
    ("train --out OUT --seed -1", "--seed is -1"),
    ("train --out OUT --rate-backbone nan", "finite"),
    ("train --out OUT --decay-shaping -1", "--decay-shaping"),
    ("evaluate OUT", "does not exist"),
    ("predict OUT image.png", "does not exist"),
    ("predict OUT image.png --coverage 90%", "--coverage is '90%', but takes a finite number, such as 0.5"),
    ("predict OUT \ud800.png", "'\\ud800.png' is not text"),
    (
        "predict OUT image.png --top few",
        "--top is 'few', but takes a whole number; see dprotonet predict --help",
    ),
    ("saliency OUT image.png --task multi", "'regression'"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_mistakes_are_one_line_and_exit_2(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(words.replace("OUT", str(out)).split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0
    assert not out.exists()


def test_a_right_that_lacks_is_told_by_the_name_the_user_knows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denied(_words: list[str]) -> None:
        raise PermissionError(13, "Permission denied", "run/report.html.0123456789ab.tmp")

    monkeypatch.setattr("dprotonet.cli.report.main", denied)
    assert main(["report"]) == 2
    assert "Permission denied: run/report.html; its rights" in capsys.readouterr().err


def test_complaints_have_no_lines_of_dashes() -> None:
    framed = "\n".join(("-" * 30, "Missing from dprotonet report:", "PATH", "-" * 30, "For full helptext"))
    assert one_line("title\n" + framed) == "Missing from dprotonet report: PATH; For full helptext"


@pytest.mark.parametrize("choices", ["('None', 'a', 'b')", "('a', 'None', 'b')", "('a', 'b', 'None')"])
def test_none_is_no_choice_wherever_it_stands(choices: str) -> None:
    assert one_line(f"title\nExpected one of {choices}.") == "Expected one of ('a', 'b')."


def test_pillow_does_not_warn_of_large_images(recwarn: pytest.WarningsRecorder) -> None:
    """Its warning showed a path and a line of code; what an image takes is reckoned before."""
    main(["--version"])
    Image.open(io.BytesIO(png(10_000, 10_000, kind=0, bits=1)))
    assert [str(one.message) for one in recwarn] == []


def test_a_failed_computation_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--out", str(tmp_path / "run"), *TINY, "--rate-shaping", "1e30"]) == 1
    error = capsys.readouterr().err
    assert "not finite" in error
    assert "Traceback" not in error


def test_help_is_quick_and_the_script_is_installed() -> None:
    script = Path(sys.executable).with_name("dprotonet")
    result = subprocess.run([script, "--help"], capture_output=True, text=True, check=False)
    assert result.returncode == 0
    assert "predict" in result.stdout


@pytest.mark.parametrize("command", ["train", "demo"])
def test_help_groups_options_by_the_tables_of_a_config(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code in (0, None)
    titles = re.findall(r"^\W*(\w+) options\W*$", capsys.readouterr().out, re.MULTILINE)
    sections = ["data", "network", "training", "augmentation", "explaining"]
    assert titles == sections[: 4 if command == "demo" else 5]
