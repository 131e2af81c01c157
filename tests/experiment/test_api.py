"""`dp.train` as people call it: settings by name, watched, stopped and resumed, with and without a bar."""

import inspect
import sys
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from tests.conftest import tiny_config

import dprotonet as dp
from dprotonet.config import given_tables
from dprotonet.experiment.progress_bar import seen_by_somebody
from dprotonet.experiment.runs.claim import claimed
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.settings.plain_settings import HOME, with_settings


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPROTONET_CACHE", str(tmp_path / "cache"))


def small(**changes: Any) -> dp.Config:
    return tiny_config(**{"epochs": 2, "last_layer_epochs": 1, "mode": "frozen", **changes})


def by_name(config: dp.Config) -> dict[str, Any]:
    """What was given, as keywords."""
    return {key: value for table in given_tables(config).values() for key, value in table.items()}


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model.safetensors")


def same_weights(one: Path, other: Path) -> bool:
    left, right = weights(one), weights(other)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def stored(run: Path) -> list[dict]:
    return [{k: v for k, v in item.items() if k != "seconds"} for item in RunFolder(run).read_metrics()]


# ── settings ──


def test_config_dict_and_keywords_train_the_same(tmp_path: Path) -> None:
    config = small()
    dp.train(config, tmp_path / "config")
    dp.train(given_tables(config), tmp_path / "tables")
    model = dp.train(out=str(tmp_path / "words"), **by_name(config))
    assert isinstance(model, dp.Model)
    assert model.folder == tmp_path / "words"
    assert same_weights(tmp_path / "config", tmp_path / "tables")
    assert same_weights(tmp_path / "config", tmp_path / "words")


def test_keywords_are_stronger_than_a_dict_and_a_config() -> None:
    changed = with_settings(small(), {"seed": 3, "training": {"epochs": 6}})
    assert (changed.training.seed, changed.training.epochs, changed.training.batch_size) == (3, 6, 8)
    assert changed.data == small().data


def test_what_is_not_given_is_still_implied() -> None:
    """A dict does not turn defaults into wishes: the recipe has its say."""
    given = given_tables(with_settings(dp.Config(), {"mode": "frozen", "recipe": "masks", "patch": (2, 2)}))
    assert given["training"] == {"mode": "frozen"}
    assert given["network"] == {"patch": [2, 2]}


def test_numbers_of_numpy_are_numbers() -> None:
    """As loops over np.arange and np.linspace give them."""
    given = {"epochs": np.int64(6), "rate_head": np.float32(0.5), "network": {"masks": np.uint8(9)}}
    tables = given_tables(with_settings(dp.Config(), given))
    assert tables["training"] == {"epochs": 6, "rate_head": 0.5}
    assert tables["network"] == {"masks": 9}
    assert [type(value) for value in tables["training"].values()] == [int, float]
    with pytest.raises(dp.UserError, match=r"training.epochs must be int"):
        with_settings(dp.Config(), {"epochs": np.float64(6.5)})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epoch": 3}, "unknown setting 'epoch'; did you mean 'epochs'"),
        ({"trainin": {"epochs": 3}}, "unknown setting 'trainin'; did you mean 'training'"),
        ({"training": {"epoch": 3}}, "unknown key 'epoch' in training"),
        ({"epochs": "three"}, "training.epochs must be int"),
        ({"mode": "forzen"}, "choose one of joint, frozen, auto"),
        ({"regions": "points", "masks": 9}, "--masks has no effect with --regions points"),
    ],
)
def test_a_wrong_setting_is_told_and_leaves_nothing(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(dp.UserError, match=words):
        dp.train(settings, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_out_is_needed_and_resume_excludes_overwrite(tmp_path: Path) -> None:
    with pytest.raises(dp.UserError, match="out is missing"):
        dp.train(mode="frozen")
    with pytest.raises(dp.UserError, match="on_event is a function of an event, not list"):
        dp.train(small(), tmp_path / "run", on_event=[])  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(dp.UserError, match="give one of them"):
        dp.train(out=tmp_path / "run", resume=True, overwrite=True)
    with pytest.raises(dp.UserError, match="is not a run folder; start without resume"):
        dp.train(small(), tmp_path / "run", resume=True)


def test_no_setting_has_the_name_of_a_parameter() -> None:
    parameters = set(inspect.signature(dp.train).parameters)
    assert not parameters & (set(HOME) | {"recipe"})
    assert len(HOME) == sum(len(fields(getattr(dp.Config(), name))) for name in set(HOME.values()))


def test_data_is_kept_with_its_full_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the run can be evaluated from anywhere; here the folder is missing, which the error says."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(dp.UserError, match=str(tmp_path / "photos")):
        dp.train(out="run", data="folder:photos", mode="frozen")


# ── watched, stopped, resumed ──


@pytest.mark.parametrize("moment", [dp.Preparing, dp.StepDone, dp.EpochDone, dp.PushDone, dp.RoundDone])
def test_a_run_that_on_event_stops_goes_on_as_if_it_had_not(tmp_path: Path, moment: type) -> None:
    config = small(epochs=4)
    dp.train(config, tmp_path / "whole")
    seen: list[object] = []

    def stop(event: object) -> bool:
        seen.append(event)
        return isinstance(event, moment)

    (tmp_path / "cache").rename(tmp_path / "elsewhere")  # so that features are prepared again
    if moment is dp.RoundDone:
        assert dp.train(config, tmp_path / "run", on_event=stop).classes
    else:
        with pytest.raises(dp.UserError, match=r"stopped before .* had a model; .*resume=True"):
            dp.train(config, tmp_path / "run", on_event=stop)
    assert sum(isinstance(event, moment) for event in seen) == 1
    assert not (tmp_path / "run.lock").exists()
    dp.train(out=tmp_path / "run", resume=True)
    assert same_weights(tmp_path / "whole", tmp_path / "run")
    assert stored(tmp_path / "whole") == stored(tmp_path / "run")


def test_on_event_sees_the_whole_run(tmp_path: Path) -> None:
    seen: list[object] = []
    dp.train(small(), tmp_path / "run", on_event=seen.append)  # type: ignore[arg-type]
    counts = [sum(isinstance(event, kind) for event in seen) for kind in (dp.EpochDone, dp.RoundDone)]
    told = [item["event"] for item in stored(tmp_path / "run")]
    assert counts == [told.count("EpochDone"), told.count("RoundDone")]
    assert any(isinstance(event, dp.StepDone) for event in seen)
    assert any(isinstance(event, dp.Preparing) for event in seen)


def test_an_error_of_on_event_gives_the_folder_back(tmp_path: Path) -> None:
    def fail(event: object) -> bool:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        dp.train(small(), tmp_path / "run", on_event=fail)
    with claimed(tmp_path / "run"):
        pass


def test_a_resumed_run_may_be_longer_and_nothing_else(tmp_path: Path) -> None:
    dp.train(small(), tmp_path / "run")
    dp.train({"epochs": 4}, tmp_path / "run", resume=True)
    assert max(item["epoch"] for item in stored(tmp_path / "run")) == 4
    with pytest.raises(dp.UserError, match="cannot change batch_size"):
        dp.train(out=tmp_path / "run", batch_size=9, resume=True)
    with pytest.raises(dp.UserError, match="cannot change seed"):
        dp.train(small(epochs=4, seed=1), tmp_path / "run", resume=True)


def automatic() -> dp.Config:
    config = small(epochs=1, warm_epochs=0, push_every=1, mode="auto")
    data = dp.DataConfig(species=2, train_per_species=5, val_per_species=1, test_per_species=2, image_size=32)
    return replace(config, data=data, network=replace(config.network, dimension=8, masks=5))


def test_mode_auto_is_watched_stopped_and_resumed(tmp_path: Path) -> None:
    run, seen = tmp_path / "run", []

    def stop_in_second_trial(event: object) -> bool:
        return isinstance(event, dp.Trial) and event.step.fold == 2

    def stop_in_run(event: object) -> bool:
        seen.append(event)
        return isinstance(event, dp.StepDone)

    with pytest.raises(dp.UserError, match="stopped in the trials"):
        dp.train(automatic(), run, on_event=stop_in_second_trial)
    assert not run.exists()
    assert (tmp_path / "run.trials" / "joint" / "fold-1" / "result.json").is_file()
    with pytest.raises(dp.UserError, match="stopped before"):
        dp.train(automatic(), run, on_event=stop_in_run, resume=True)
    first = next(event for event in seen if isinstance(event, dp.Trial) and event.step.event is not None)
    assert first.step.fold == 2  # the first fold was not trained again
    assert (run / "mode.json").is_file()
    model = dp.train(automatic(), run, resume=True)
    assert model.config.training.mode in ("frozen", "joint")
    assert RunFolder(run).read_origins()["training.mode"] == "chosen by cross-validation"
    with pytest.raises(dp.UserError, match="stopped in the trials"):  # the model there is an older one
        dp.train(automatic(), run, on_event=stop_in_second_trial, overwrite=True)


# ── the bar ──


def test_the_bar_is_shown_and_silent_as_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dp.train(small(), tmp_path / "loud", progress=True)
    shown = capsys.readouterr().err
    assert "computing backbone features" in shown
    assert "epoch 2" in shown
    assert "validation" in shown
    dp.train(small(), tmp_path / "silent", progress=False)
    dp.train(small(), tmp_path / "usual")  # stderr is no terminal here
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("terminal", "notebook", "rank", "shown"),
    [
        (True, False, "0", True),
        (False, True, "0", True),
        (False, False, "0", False),
        (True, True, "1", False),
    ],
)
def test_who_sees_a_bar(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, notebook: bool, rank: str, shown: bool
) -> None:
    shell = SimpleNamespace(config={"IPKernelApp": {}} if notebook else {})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[misc]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setenv("RANK", rank)
    assert seen_by_somebody() is shown


# ── the other functions ──


def test_open_data_and_similarity_maps(run_folder: Path) -> None:
    assert len(dp.open_data(dp.DataConfig(species=2, test_per_species=3)).test) == 6
    with pytest.raises(dp.UserError, match="unknown data set"):
        dp.open_data("brids")
    model = dp.load(run_folder)
    images = model.inputs([dp.Birds(species=4, per_species=1, size=64)[0].image])
    by_model, by_name = (
        dp.similarity_maps(given).explain(images, dp.ClassNode(model.network, [1]))[0].heatmap
        for given in (model, dp.classifier(run_folder))
    )
    assert by_model.shape == (64, 64)
    assert torch.equal(by_model, by_name)
    named = dp.similarity_maps(run_folder).explain(images, model.classes[1])[0].heatmap  # classes have names
    assert torch.equal(by_model, named)
    with pytest.raises(dp.UserError, match=r"not DProtoNet; any module is explained by dp.MDM\(module\)"):
        dp.similarity_maps(model.network)  # type: ignore[arg-type]
    with pytest.raises(dp.UserError, match="needs a prototype network"):
        dp.similarity_maps(dp.classifier("timm:tf_efficientnet_lite0:packaged"))


@pytest.mark.parametrize("config", ["birds.toml", ["mode", "frozen"], 5])
def test_settings_that_are_none(config: object, tmp_path: Path) -> None:
    with pytest.raises(
        dp.UserError, match=f"a Config or a dict, not {type(config).__name__}; the run folder is out="
    ):
        dp.train(config, out=tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_one_image_needs_no_list(run_folder: Path, tmp_path: Path) -> None:
    image = dp.Birds(species=4, per_species=1, size=64)[0].image
    path = tmp_path / "bird.png"
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
    model, network = dp.load(run_folder), dp.classifier(run_folder)
    for alone in (str(path), path, image, Image.open(path)):
        for inputs in (model.inputs, network.inputs):
            assert torch.equal(inputs(alone), inputs([alone]))
        (found,) = model.predict_many(alone)
        assert found.probabilities == model.predict(alone).probabilities
    for inputs in (model.inputs, network.inputs):
        with pytest.raises(dp.UserError, match="there are no images"):
            inputs([])
        with pytest.raises(dp.UserError, match=r"an image is a path, .* not a NoneType"):
            inputs(None)  # type: ignore[arg-type]
