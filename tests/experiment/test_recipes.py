"""Recipes: one function makes every setting final, however it was asked for."""

import itertools
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from tests.conftest import rival_config, shown, tiny_config

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.config import Config, NetworkConfig, TrainingConfig, by_name, from_tables, to_tables
from dprotonet.data.transforms import Augment
from dprotonet.experiment.benchmark.plan import Plan
from dprotonet.experiment.build.training import build_augment
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.experiment.settings.config_check import check_config
from dprotonet.experiment.settings.paper_values import DECODER, PAPER
from dprotonet.experiment.settings.recipe_tables import (
    FROZEN,
    FROZEN_RIVALS,
    NETWORKS,
    PARTS,
    RECIPES,
    Tables,
)
from dprotonet.experiment.settings.recipes import config_from, final_config
from dprotonet.interpretation.mdm import preset

MODES = ("joint", "frozen")
RIVALS = tuple(name for name in NETWORKS if name != "dprotonet")


def origin(text: str, key: str) -> str:
    (line,) = (line for line in text.splitlines() if line.startswith(f"{key} = "))
    return line.split(" # ")[1]


# ── three ways in, one answer ──


@pytest.mark.parametrize("recipe", ["default", "paper"])
@pytest.mark.parametrize(("network", "mode"), list(itertools.product(NETWORKS, MODES)))
def test_command_line_file_plan_and_python_agree(
    network: str, mode: str, recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--network", network, "--mode", mode, "--recipe", recipe]
    by_flags = tomllib.loads(shown(flags, capsys))
    file, tables = tmp_path / "run.toml", {"network": {"network": network}, "training": {"mode": mode}}
    file.write_text(tomli_w.dumps({"recipe": recipe, **tables}), encoding="utf-8")
    by_file = tomllib.loads(shown(["--config", str(file)], capsys))
    asked = Config(
        network=NetworkConfig(network=network),  # type: ignore[arg-type]
        training=TrainingConfig(mode=mode),  # type: ignore[arg-type]
        recipe=recipe,
    )
    by_python = Trainer(asked, tmp_path / "run").config
    content = {"recipe": recipe, **tables, "row": [{"name": "a"}], "column": [{"name": "b"}]}
    by_plan = Plan.of(content, where="plan").cells[0].config
    assert by_flags == by_file == to_tables(by_python) == to_tables(by_plan)
    check_config(by_python)


def test_a_final_config_stays_as_it_is() -> None:
    for network, recipe in itertools.product(NETWORKS, ("default", "paper")):
        final = config_from({"network": {"network": network}, "recipe": recipe})
        assert final_config(final) == final
        assert final_config(from_tables(Config, to_tables(final), where="")) == final


def test_replacing_a_value_of_a_final_config_changes_that_one_alone() -> None:
    final = final_config(Config())
    replaced = final_config(replace(final, training=replace(final.training, mode="frozen")))
    assert replaced.training == replace(final.training, mode="frozen")
    anew = final_config(Config(data=final.data, training=TrainingConfig(mode="frozen")))
    assert {key: getattr(anew.training, key) for key in PARTS["training"]} == PARTS["training"]


@pytest.mark.parametrize(("recipe", "tables"), [("default", PARTS), ("parts", PARTS), ("masks", FROZEN)])
def test_python_trains_frozen_mode_as_the_command_line_does(recipe: str, tables: Tables) -> None:
    asked = Config(training=TrainingConfig(mode="frozen", rate_shaping=0.01), recipe=recipe)
    training = final_config(asked).training
    wanted = {**tables["training"], "rate_shaping": 0.01}
    assert {key: getattr(training, key) for key in wanted} == wanted


def test_joint_mode_has_parts_that_start_as_discriminants_and_steady_statistics() -> None:
    joint = final_config(Config())
    assert (joint.network.regions, joint.training.shaping_start) == ("parts", "discriminant")
    assert (joint.training.epochs, joint.training.batchnorm) == (10, "frozen")
    masks = final_config(Config(recipe="masks"))
    assert (masks.network.regions, masks.training.shaping_start) == ("masks", "discriminant")
    assert masks.training.rate_shaping == FROZEN["training"]["rate_shaping"]
    paper = final_config(Config(recipe="paper"))
    assert (paper.training.shaping_start, paper.training.batchnorm) == ("random", "learns")


def test_a_black_box_that_learns_starts_as_the_discriminant() -> None:
    config = final_config(Config(network=NetworkConfig(network="blackbox")))
    assert (config.training.shaping_start, config.training.batchnorm) == ("discriminant", "frozen")
    frozen = Config(network=NetworkConfig(network="blackbox"), training=TrainingConfig(mode="frozen"))
    assert final_config(frozen).training.shaping_start == "random"


@pytest.mark.parametrize(
    ("words", "regions", "count"),
    [
        ("", "parts", 10),
        ("--parts 6", "parts", 6),
        ("--prototypes-per-class 4", "parts", 4),  # no part that no prototype belongs to
        ("--prototypes-per-class 14", "parts", 14),  # nor two of a class for one part
        ("--prototypes-per-class 4 --parts 6", "parts", 6),
        ("--mask-contrast 1", "masks", 10),
        ("--masks 100", "masks", 10),
        ("--similarity log", "masks", 10),
        ("--regions points", "points", 10),
        ("--recipe masks", "masks", 10),
        ("--mode joint", "parts", 10),
    ],
)
def test_both_modes_have_parts_unless_something_else_is_asked_for(
    words: str, regions: str, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_from(tomllib.loads(shown(["--mode", "frozen", *words.split()], capsys)))
    assert (config.network.regions, config.network.parts) == (regions, count)
    assert (config.network.levels == 2) == (regions == "parts")
    check_config(config)


@pytest.mark.parametrize(
    ("words", "counts"),
    [("--parts 6", (6, 6)), ("--parts 14", (14, 14)), ("--parts 6 --prototypes-per-class 12", (6, 12))],
)
def test_a_class_has_one_prototype_for_each_part_unless_both_are_given(
    words: str, counts: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(["--mode", "frozen", *words.split()], capsys)
    network = config_from(tomllib.loads(text)).network
    assert (network.parts, network.prototypes_per_class) == counts
    given = "--prototypes-per-class" in words
    assert origin(text, "prototypes_per_class") == ("command line" if given else "one for each part")


# ── who wins ──


def test_what_is_given_wins_even_where_it_equals_the_default() -> None:
    frozen = final_config(Config(training=TrainingConfig(mode="frozen", epochs=30))).training
    assert (frozen.epochs, frozen.push_every) == (30, 5)
    tables: dict[str, Any] = {
        "network": {"epsilon": 1e-12, "network": "gen-protopnet"},
        "training": {"head_learns": "always"},
    }
    config = config_from(tables)
    assert (config.network.epsilon, config.training.head_learns) == (1e-12, "always")
    assert (config.network.regions, config.network.patch) == ("patches", (2, 2))


@pytest.mark.parametrize(
    ("words", "start"),
    [
        ("--mode frozen", "discriminant"),
        ("--mode frozen --shaping-start random", "random"),
        ("--mode frozen --regions occurrence", "random"),
        ("--mode frozen --network xprotonet", "random"),
        ("--mode joint --config FILE", "discriminant"),
        ("--mode joint --recipe paper", "random"),
        ("--config FILE", "discriminant"),
        ("--mode joint --mode frozen", "discriminant"),
        ("--mode frozen --dimension 1", "random"),
        ("--config POINTS --regions masks", "discriminant"),
        ("--mode frozen --recipe paper", "random"),
    ],
)
def test_what_depends_on_a_flag(
    words: str, start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, points = tmp_path / "frozen.toml", tmp_path / "points.toml"
    file.write_text('[training]\nmode = "frozen"\n', encoding="utf-8")
    points.write_text('[network]\nregions = "occurrence"\n[training]\nmode = "frozen"\n', encoding="utf-8")
    given = [word.replace("FILE", str(file)).replace("POINTS", str(points)) for word in words.split()]
    config = config_from(tomllib.loads(shown(given, capsys)))
    assert config.training.shaping_start == start
    check_config(config)


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_differs_and_is_valid(name: str) -> None:
    config, plain = rival_config(name), final_config(Config())
    check_config(config)
    assert config.network.network == name
    assert replace(config.network, network="dprotonet") != plain.network or config.training != plain.training


@pytest.mark.parametrize("name", [name for name in RECIPES if RECIPES[name].network])
def test_a_rivals_recipe_names_its_network(name: str) -> None:
    config = config_from({"recipe": name})
    assert config.network.network == RECIPES[name].network
    if "protopnet" in name:
        assert (config.network.dimension, config.training.views_per_epoch) == (128, 30)
    other = "xprotonet" if RECIPES[name].network == "dprotonet" else "dprotonet"
    with pytest.raises(dp.UserError, match="is of the network"):
        config_from({"recipe": name, "network": {"network": other}})


@pytest.mark.parametrize("name", FROZEN_RIVALS)
@pytest.mark.parametrize("start", ["random", "discriminant"])
def test_a_frozen_rival_has_the_values_of_the_plans(name: str, start: str) -> None:
    """By its word alone it starved: step decay, 30 short epochs. The plans name no value themselves."""
    given = {"mode": "frozen", "shaping_start": start}
    config = rival_config(name, {"training": given})
    assert (config.network.dimension, config.training.prototype_start) == (128, "regions")
    assert config.training.rate_schedule == ("constant" if name == "protopool" else "cosine")
    rates = {"random": 1e-2, "discriminant": 3e-3}
    assert config.training.rate_shaping == config.training.rate_prototypes == rates[start]
    for plan in ("general", "medical"):
        cells = Plan.read(Path(f"configs/frozen/{plan}.toml")).cells
        (found, *_) = [
            cell.config
            for cell in cells
            if (cell.config.network.network, cell.config.training.shaping_start) == (name, start)
        ]
        assert (found.network, found.training) == (config.network, config.training)
    chosen = rival_config(name, {"training": {**given, "epochs": 7}})
    assert (chosen.training.epochs, chosen.training.push_every) == (7, config.training.push_every)
    for other in ({"recipe": name}, {"recipe": "paper", "network": {"network": name}}):
        theirs = config_from({**other, "training": {"mode": "frozen"}})
        assert (theirs.training.rate_schedule, theirs.training.prototype_start) == ("step", "uniform")


# ── where values come from ──


def test_origins_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[network]\nmasks = 9\ndimension = 20\n", encoding="utf-8")
    words = ["--config", str(file), "--mode", "frozen", "--dimension", "30", "--recipe", "paper"]
    text = shown(words, capsys)
    assert origin(text, "masks") == "file mine.toml"
    assert origin(text, "dimension") == origin(text, "mode") == "command line"
    assert origin(text, "epsilon") == "recipe paper: Section 4.3"
    assert origin(text, "optimizer").startswith("recipe paper: Section 4.3")
    assert origin(text, "last_layer_epochs") == "default: not in the paper"
    assert origin(text, "views_per_epoch") == "recipe paper, where the paper is silent"
    rival = shown(["--recipe", "paper", "--network", "xprotonet"], capsys)
    assert (origin(rival, "decoder"), origin(rival, "mask_style")) == ("default", "default")
    text = shown(["--mode", "frozen", "--network", "dprotonet"], capsys)
    assert (origin(text, "epochs"), origin(text, "batch_size")) == ("frozen mode", "default")
    assert origin(shown(["--network", "protopnet"], capsys), "regions") == "network protopnet"


def test_a_run_folder_keeps_where_its_values_came_from(tmp_path: Path) -> None:
    config = replace(tiny_config(mode="frozen", epochs=2), recipe="paper")
    for _ in Trainer(config, tmp_path / "run", cache=tmp_path / "cache").run():
        pass
    folder = RunFolder(tmp_path / "run")
    origins = folder.read_origins()
    assert set(origins) == set(by_name(folder.read_config()))
    assert origins["training.epochs"] == "given"
    assert origins["network.mask_style"].startswith("recipe paper: Section 3.2")
    for _ in Trainer(
        replace(folder.read_config(), training=replace(folder.read_config().training, epochs=4)),
        tmp_path / "run",
        resume=True,
        cache=tmp_path / "cache",
    ).run():
        pass
    assert folder.read_origins() == origins  # epochs were given before and after
    assert folder.read_config().training.epochs == 4


def test_augmentation_has_the_same_defaults_as_a_setting_and_by_hand() -> None:
    assert build_augment(final_config(Config()).augmentation) == Augment()
    changed = config_from({"augmentation": {"flip": 0.0, "shear": 3.0, "rotation_probability": 0.1}})
    assert build_augment(changed.augmentation) == Augment(flip=0.0, shear=3.0, rotation_probability=0.1)


# ── the paper ──


def test_the_papers_recipe_has_the_papers_values() -> None:
    """Section 4.3 once more, spelt out."""
    config = config_from({"recipe": "paper"})
    network, training, explaining = config.network, config.training, config.explaining
    assert (network.mask_style, network.masks, network.dimension) == ("uniform", 720, 512)
    assert (network.prototypes_per_class, network.epsilon, network.similarity) == (10, 1e-12, "log")
    assert (training.mode, training.batch_size, training.warm_epochs) == ("joint", 60, 5)
    assert (training.push_every, training.push_images) == (10, 40)
    rates = (training.rate_backbone, training.rate_shaping, training.rate_prototypes, training.rate_head)
    assert rates == (1e-4, 3e-3, 3e-3, 1e-4)
    assert (training.rate_schedule, training.decay_backbone, training.decay_shaping) == ("constant", 0, 0)
    assert (training.cluster, training.separation, training.foreign) == (0.8, -0.08, 1e-4)
    assert (explaining.decoder, explaining.image_weight, explaining.heatmap_weight) == ("paper", 0.5, 0.3)
    assert (config.augmentation.flip, config.data.image_size) == (0, 224)


def test_the_papers_decoder_has_the_papers_values() -> None:
    decoder = vars(preset("paper"))
    assert {key: decoder[key] for key in DECODER} == {key: item.value for key, item in DECODER.items()}


@pytest.mark.parametrize(("mode", "recipe"), [*((mode, "default") for mode in MODES), ("frozen", "masks")])
def test_every_departure_from_the_paper_has_a_reason_on_the_page(mode: str, recipe: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "fidelity.md").read_text(encoding="utf-8")
    ours = by_name(config_from({"training": {"mode": mode}, "recipe": recipe}))
    differing = {
        name: item
        for name, item in PAPER.stated.items()
        if item.value is not None and ours[name] != item.value
    }
    assert "network.mask_style" in differing
    for name, item in differing.items():
        assert item.departure, f"{name} departs from the paper without a reason in paper_values.py"
        (line,) = (line for line in page.splitlines() if line.startswith(f"| `{name.rpartition('.')[2]}` |"))
        assert f"| {item.value} | {item.place} |" in line
        assert f"| {ours[name]} |" in line
        assert item.departure in page


def test_the_authors_recipes_warp_once_per_view_on_average() -> None:
    for name in ("protopnet", "np-protopnet", "gen-protopnet"):
        used = config_from({"recipe": name}).augmentation
        chances = (used.rotation_probability, used.shear_probability, used.perspective_probability)
        assert sum(chances) == pytest.approx(1)
        assert (used.rotation, used.shear, used.flip, used.distortion_probability) == (15, 10, 0.5, 0)
    shared = config_from({"recipe": "paper", "network": {"network": "protopnet"}}).augmentation
    assert shared == replace(config_from({}).augmentation, flip=0.0)  # in the paper's comparison, one for all


def test_corners_wander_as_far_as_in_a_tilt_by_the_authors() -> None:
    rng = np.random.default_rng(0)
    theirs = 2 * (rng.uniform(0, 0.2, 100_000) ** 2).mean()  # two corners in one direction, in sides
    reach = config_from({"recipe": "protopnet"}).augmentation.perspective / 4  # of half a side, either way
    ours = 8 * (rng.uniform(-reach, reach, 100_000) ** 2).mean()  # four corners in both directions
    assert ours == pytest.approx(theirs, rel=0.02)


# ── mistakes ──


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"network": 3}, "network must be a table"),
        ({"network": {"network": "protonet"}}, "choose one of dprotonet"),
        ({"network": {"network": 1}}, "choose one of dprotonet"),
        ({"recipe": "papr"}, "unknown recipe 'papr'; did you mean 'paper'"),
        ({"recipe": 3}, "recipe must be str"),
        ({"augmentation": {"flip": 2.0}}, r"^--flip is 2\.0; it must be between 0 and 1$"),
        ({"augmentation": {"shear": 60.0}}, r"^--shear is 60\.0; it must be between 0 and 45$"),
        ({"augmentation": {"flop": 1.0}}, "did you mean 'flip'"),
        ({"training": {"views_per_epoch": 0}}, "--views-per-epoch is 0"),
        ({"explaining": {"heatmap_weight": -1.0}}, r"^--heatmap-weight is -1\.0; it must be between"),
    ],
)
def test_mistakes_are_named(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(dp.UserError, match=message):
        check_config(config_from(tables))


@pytest.mark.parametrize("words", [["--epochs", "0"], ["--flip", "2"]])
def test_values_are_checked_before_they_are_shown(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, "--show-config"]) == 2
    out, error = capsys.readouterr()
    assert not out
    assert f"{words[0]} is {words[1]}" in error


@pytest.mark.parametrize("name", RIVALS)
def test_a_name_on_another_networks_values_is_refused(name: str) -> None:
    config = final_config(Config())
    wrong = replace(config, network=replace(config.network, network=name))
    with pytest.raises(dp.UserError, match="but its values are DProtoNet's"):
        check_config(wrong)


@pytest.mark.parametrize(
    "topic",
    [
        "A·x in Eq. (19) and M^b·X0 in line 21",
        "class nodes",
        "which percentile of the pixels AD and AI remove",
        "how many augmented copies of an image an epoch goes through",
        "which x_i of a class a push takes",
        "held out for validation",
        "frozen mode as such",
        "how many epochs follow the warm ones",
    ],
)
def test_the_page_of_fidelity_speaks_of(topic: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "fidelity.md"
    assert topic in page.read_text(encoding="utf-8")
