"""Settings that nothing in a run would look at are refused where somebody typed them."""

import tomllib
from pathlib import Path

import pytest
from tests.conftest import shown

from dprotonet.cli.main import main
from dprotonet.experiment.settings.recipe_tables import RECIPES


@pytest.mark.parametrize(
    ("words", "flag", "needed"),
    [
        ("--recipe parts --mask-contrast 0.3", "--mask-contrast", "--recipe masks"),
        ("--recipe parts --masks 100", "--masks", "--recipe masks"),
        ("--recipe parts --activation sigmoid --shaping-start random", "--activation", "linear"),
        ("--mode frozen --recipe masks --parts 5", "--parts", "--recipe parts"),
        ("--mode frozen --parts 5 --mask-contrast 0.3", "--parts", "--recipe parts"),
        ("--mode frozen --patch 2 2", "--patch", "--regions patches"),
        (
            "--mode frozen --regions points --epsilon 1e-3 --similarity cosine",
            "--epsilon",
            "--similarity log",
        ),
        ("--mode frozen --rate-head 1e-3", "--rate-head", "--head-learns always"),
        ("--mode frozen --last-layer-epochs 5", "--last-layer-epochs", "--head-learns always"),
        ("--mode frozen --rate-prototypes 1e-3", "--rate-prototypes", "--prototypes-learn always"),
        ("--recipe masks --rate-parts 1e-3", "--rate-parts", "--regions parts"),
        ("--recipe masks --level-channels 16", "--level-channels", "--levels 2"),
        ("--mask-style uniform --mask-grid 4", "--mask-grid", "--mask-style spatial"),
        ("--network blackbox --prototypes-per-class 5", "--prototypes-per-class", "no prototypes"),
        ("--mode frozen --frozen-stages 2", "--frozen-stages", "--mode frozen"),
        ("--recipe masks --augmentations 3", "--augmentations", "--mode frozen or --frozen-stages"),
        ("--mode frozen --batchnorm frozen", "--batchnorm", "--mode frozen"),
        ("--mode frozen --rate-backbone 1e-3", "--rate-backbone", "--mode frozen"),
        ("--network blackbox --part-dropout 0.1", "--part-dropout", "no prototypes"),
        ("--recipe masks --part-area 0.5", "--part-area", "parts"),
        ("--recipe masks --part-foreground energy", "--part-foreground", "parts"),
        ("--network blackbox --cluster 1", "--cluster", "no prototypes"),
        ("--network protopnet --masks 5", "--masks", "--regions masks"),
    ],
)
def test_a_flag_that_nothing_looks_at_is_refused(
    words: str, flag: str, needed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words.split(), "--show-config"]) == 2
    error = capsys.readouterr().err
    assert f"{flag} has no effect" in error
    assert needed in error
    assert error.strip().count("\n") == 0


def test_views_are_kept_of_a_backbone_whose_first_stages_are_frozen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (["--recipe", "masks", "--frozen-stages", "2"], ["--mode", "frozen"]):
        assert "augmentations = 3 " in shown([*words, "--augmentations", "3"], capsys)


def test_parts_that_begin_as_discriminants_have_no_uniform_prototypes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The discriminant was left out in silence."""
    words = ["--mode", "frozen", "--prototype-start", "uniform"]
    assert main(["train", *words, "--show-config"]) == 2
    assert "--prototype-start uniform; add --shaping-start random" in capsys.readouterr().err
    shown([*words, "--shaping-start", "random"], capsys)


def test_the_help_names_every_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    told = text[text.index("Which values are implied") :][:400]
    assert all(name in told for name in RECIPES)


def test_a_file_that_names_every_setting_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.toml"
    file.write_text(shown(["--mode", "frozen"], capsys), encoding="utf-8")
    assert tomllib.loads(shown(["--config", str(file)], capsys)) == tomllib.loads(file.read_text("utf-8"))
