"""`dprotonet prototypes` and `dprotonet prune --drop | --purity` as a user types them."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.experiment.prototypes.facts import FILE, PrototypeFacts, stored_facts


@pytest.fixture(scope="module")
def run(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny run with facts kept and two prototypes planted: a twin, and one near another class."""
    folder = shutil.copytree(run_folder, tmp_path_factory.mktemp("prune") / "run")
    model = dp.load(folder)
    with torch.no_grad():
        vectors = model.prototyped.prototypes.vectors
        vectors[3], vectors[7] = vectors[2], vectors[0]
    shutil.rmtree(folder / "prototypes")
    shutil.copytree(run_folder / "prototypes", folder / "prototypes")
    model.save_pretrained(folder)
    stored_facts(dp.load(folder))
    return folder


def val_accuracy(run: Path, capsys: pytest.CaptureFixture[str], out: Path) -> float:
    assert main(["evaluate", str(run), "--split", "val", "--out", str(out), "--json"]) == 0
    accuracy: float = json.loads(capsys.readouterr().out)["accuracy"]
    return accuracy


def test_prototypes_are_listed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prototypes", str(run), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    facts = [PrototypeFacts.from_json(item) for item in content["prototypes"]]
    assert sorted(item.prototype for item in facts) == list(range(8))
    assert [item["prototype"] for item in content["origins"]] == [item.prototype for item in facts]
    assert all(item["place"] is None and len(item["sources"]) == 1 for item in content["origins"])  # masks
    assert [item.label for item in facts] == [0, 0, 1, 1, 2, 2, 3, 3]
    for one, two in zip(facts[::2], facts[1::2], strict=True):
        assert one.purity <= two.purity
    assert next(item.duplicates for item in facts if item.prototype == 2) == (3,)
    assert set(facts) == set(stored_facts(dp.load(run)))
    assert main(["prototypes", str(run)]) == 0
    text = capsys.readouterr().out
    assert "purity" in text
    assert dp.load(run).classes[3] in text


def test_named_prototypes_are_dropped(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new"
    assert main(["prune", str(run), "--out", str(out), "--drop", "7, 3,3", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["dropped"], content["kept"]) == ([3, 7], [0, 1, 2, 4, 5, 6])
    assert content["last_layer_epochs"] == 2
    before, after = dp.load(run), dp.load(out)
    assert [item.source for item in after.prototypes] == [
        before.prototypes[old].source for old in content["kept"]
    ]
    told = content["accuracy"]["val"]
    assert told == {
        "before": val_accuracy(run, capsys, tmp_path / "evaluation"),
        "after": val_accuracy(out, capsys, tmp_path / "evaluation"),
    }
    remembered = json.loads((out / "cleaned.json").read_text())
    assert [item["prototype"] for item in remembered["dropped"]] == [3, 7]
    assert remembered["dropped"][0]["class_name"] == before.prototypes[3].class_name
    assert remembered["dropped"][0]["reason"] == "named by the user"
    assert remembered["accuracy"] == content["accuracy"]
    assert remembered["run"] == str(run)
    assert set(content["accuracy"]) == {"train", "val"}  # test data has no say
    assert not torch.equal(after.network.head.weight, before.network.head.weight[:, content["kept"]])


def test_impure_prototypes_are_dropped(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(run, tmp_path / "run")  # its facts are made anew, of fewer images
    facts = stored_facts(dp.load(run), nearest=2)
    bound = min(max(item.purity for item in facts if item.label == label) for label in range(4))
    impure = [item.prototype for item in facts if item.purity < bound]
    assert 7 in impure  # planted
    out = tmp_path / "new"
    words = ["prune", str(run), "--out", str(out), "--purity", str(bound), "--nearest", "2"]
    assert main([*words, "--no-retrain", "--split", "test"]) == 0
    text = capsys.readouterr().out
    assert f"{len(impure)} prototypes dropped, {8 - len(impure)} left\n" in text
    assert all(f"{split} accuracy" in text for split in ("train", "val", "test"))
    left = [number for number in range(8) if number not in impure]
    before, after = dp.load(run), dp.load(out)
    assert torch.equal(after.network.head.weight, before.network.head.weight[:, left])
    reasons = {
        item["prototype"]: item["reason"]
        for item in json.loads((out / "cleaned.json").read_text())["dropped"]
    }
    assert reasons == {each: f"purity {facts[each].purity:.2f} is below {bound:g}" for each in impure}


MISTAKES = [
    ("prune RUN --out OUT --drop 3 --purity 0.5", "--drop and --purity exclude each other"),
    ("prune RUN --out OUT --drop 3 --least 2", "--least belongs to ProtoPNet's rule"),
    ("prune RUN --out OUT --drop 3 --nearest 2", "--nearest belongs to ProtoPNet's rule"),
    ("prune RUN --out OUT --purity 0.5 --least 2", "--least belongs to ProtoPNet's rule"),
    ("prune RUN --out OUT --purity 1.5", "--purity is 1.5; it is a share"),
    ("prune RUN --out OUT --purity 0", "--purity is 0.0; it is a share"),
    ("prune RUN --out OUT --purity nan", "--purity is 'nan', but takes a finite number"),
    ("prune RUN --out OUT --purity 0.5 --nearest 0", "--nearest is 0"),
    ("prune RUN --out OUT --drop three", "--drop three: give numbers"),
    ("prune RUN --out OUT --drop 1,,2", "give numbers"),
    ("prune RUN --out OUT --drop 8", "there is no prototype 8; the run has 0 to 7"),
    ("prune RUN --out OUT --drop 2,3", "would be left without prototypes; keep at least one of 2, 3"),
    ("prune RUN --out OUT --least 7", "least is 7"),
    ("prune RUN --out RUN --drop 3", "is not empty; name another folder"),
    ("prune RUN --out RUN/config.toml --drop 3", "is a file"),
    ("prune RUN --out OUT --drop 3 --data folder:OUT", "does not exist"),
    ("prototypes OUT", "does not exist"),
    ("prototypes RUN --nearest 0", "--nearest is 0"),
    ("prototypes RUN --data stamps", "unknown data set"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_mistakes_are_one_line_and_exit_2(
    words: str, message: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    typed = [word.replace("RUN", str(run)).replace("OUT", str(out)) for word in words.split()]
    assert main(typed) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0
    assert not out.exists()


def test_data_that_is_gone(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kept facts outlive the data; without them, and for pruning, the error says what is gone."""
    orphan = shutil.copytree(run, tmp_path / "orphan")
    text = (orphan / "config.toml").read_text()
    (orphan / "config.toml").write_text(
        text.replace('data = "birds"', f'data = "folder:{tmp_path / "gone"}"')
    )
    assert main(["prototypes", str(orphan), "--json"]) == 0
    assert main(["prune", str(orphan), "--out", str(tmp_path / "out"), "--drop", "3"]) == 2
    (orphan / FILE).unlink()
    capsys.readouterr()
    assert main(["prototypes", str(orphan)]) == 2
    assert f"the run's data, folder:{tmp_path / 'gone'}, cannot be read" in capsys.readouterr().err
