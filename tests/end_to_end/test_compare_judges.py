"""`dprotonet compare --judges`: further columns, grouped by what they ask, and who was made for which."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dprotonet.cli.main import main
from dprotonet.experiment.compare.judging import optimised
from dprotonet.experiment.compare.method import Method
from dprotonet.metrics.judges import FAMILIES, GROUPS, columns
from dprotonet.metrics.measures import Protocol

OWN = "‡"
METHODS = "mdm:fast,iterations=1,zoom=1,gradcam"


@pytest.fixture(scope="module")
def judged(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """A comparison of two birds by every judge, and the words that made it."""
    out = tmp_path_factory.mktemp("judged") / "out"
    words = ["compare", str(run_folder), "--out", str(out), "--methods", METHODS, "--limit", "2"]
    words += ["--steps", "3", "--judges", "all"]
    assert main(words) == 0
    return words, out


def table(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "table.json").read_text())
    return content


def test_every_judge_has_a_column_and_every_column_a_question(judged: tuple[list[str], Path]) -> None:
    content = table(judged[1])
    names = [measure.name for measure in Protocol(judges=tuple(FAMILIES)).measures]
    assert all(list(row["measures"]) == names for row in content["rows"])
    assert sorted(name for found in content["asks"].values() for name in found) == sorted(names)
    assert list(content["asks"]) == list(GROUPS)
    assert content["protocol"]["judges"] == ", ".join(FAMILIES)


def test_numbers_are_where_they_must_be(judged: tuple[list[str], Path]) -> None:
    rows = {row["method"]: row["measures"] for row in table(judged[1])["rows"]}
    for found in rows.values():
        half = (found["ROAD cold"]["mean"] - found["ROAD hot"]["mean"]) / 2
        assert found["ROAD"]["mean"] == pytest.approx(half, abs=1e-6)
        assert 0 <= found["part pointing"]["mean"] <= 1
        assert found["entropy"]["mean"] > 0
    for control in ("random", "centre", "fake"):  # which know no network, and look at no image
        assert rows[control]["alike"]["mean"] == pytest.approx(1)
        assert rows[control]["max-sensitivity"]["mean"] == 0
    assert rows["gradcam"]["alike"]["mean"] < 0.99
    assert rows["gradcam"]["max-sensitivity"]["mean"] > 0
    assert rows["fake"]["sparseness"]["mean"] < rows["centre"]["sparseness"]["mean"]


def test_every_form_says_what_a_method_optimises_itself(judged: tuple[list[str], Path]) -> None:
    out, decoder = judged[1], "mdm:fast,iterations=1,zoom=1"
    content = table(out)
    own = content["optimises"][decoder]
    assert own
    assert "ROAD" not in own
    assert set(content["optimises"]) == {decoder}
    (row,) = (row for row in csv.DictReader((out / "table.csv").open()) if row["method"] == decoder)
    assert row["optimises"].split("; ") == own
    markdown, latex = ((out / f"table.{kind}").read_text() for kind in ("md", "tex"))
    lines = [line for line in markdown.splitlines() if line.startswith(f"| {decoder} |")]
    assert sum(line.count(OWN) for line in lines) == len(own)
    assert f"{OWN}: the method optimises this itself ({decoder}: {', '.join(own)})" in markdown
    assert latex.count(r"$^\ddagger$") == len(own) + 1
    assert latex.count(r"\begin{tabular}") == len(GROUPS)
    assert all(f"**{group}**" in markdown for group in GROUPS)


def test_the_terminal_groups_and_marks_too(
    judged: tuple[list[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(judged[0]) == 0
    said = capsys.readouterr().out
    assert all(group in said for group in GROUPS)
    assert OWN in said


def test_more_judges_are_another_protocol(
    judged: tuple[list[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word if word != "all" else "road" for word in judged[0]]
    assert main(words) == 2
    assert "another protocol" in capsys.readouterr().err


def test_maps_in_files_cannot_be_made_once_more(
    two_birds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2):
        np.save(tmp_path / f"{number}.npy", np.random.default_rng(number).random((8, 8)).astype(np.float32))
    torch.manual_seed(0)  # the network has no weights but those it is drawn with
    words = ["compare", "timm:test_resnet:none", "--data", f"images:{two_birds}"]
    words += ["--out", str(tmp_path / "out")]
    words += ["--steps", "2", "--methods", f"file:{tmp_path}", "--judges", "randomised,sensitivity,saco"]
    assert main([*words, "--json"]) == 0
    (row, *_) = json.loads(capsys.readouterr().out)["rows"]
    assert row["measures"]["alike"]["mean"] is None
    assert row["measures"]["max-sensitivity"]["mean"] is None
    assert -1 <= row["measures"]["SaCo"]["mean"] <= 1


def own_of(name: str, **settings: Any) -> tuple[str, ...]:
    asked = Method(name, lambda _case: None, settings)  # type: ignore[arg-type,return-value]
    return optimised(asked, Protocol(judges=("infidelity",)).measures)


def test_what_a_method_optimises_follows_from_what_it_asks() -> None:
    keeping = ("AD", "AI", "AG", "AD50", "AI50")
    assert own_of("rise") == own_of("extremal") == own_of("mdm:paper") == keeping
    assert own_of("mdm", asks=("hide black", "keep blur")) == ("deletion", "insertion", "infidelity")
    assert own_of("mdm", asks=("both black",)) == ("deletion", *keeping, "infidelity")
    assert own_of("occlusion") == own_of("lime") == ("deletion", "infidelity")
    assert own_of("gradcam") == own_of("random") == own_of("file:maps") == ()
    assert columns(("infidelity",))[0].name == "infidelity"
