"""The report for doctors: what comes first, what is said of rows, and its numbers."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dprotonet.cli.main import main
from dprotonet.experiment.runs.row_places import FILE
from dprotonet.metrics.classification import auroc_interval
from dprotonet.report.content import Report
from dprotonet.report.page import render
from report.made_up_report import made_up
from report.outline import Outline


def clinical() -> Report:
    """A report of which the first case has a warning, a contrast, and a row of each kind."""
    report = replace(made_up(), clinical=True)
    group, *others = report.groups
    case = group.cases[0]
    argument = case.arguments[0]
    row = replace(argument.rows[0], mark="●○○ unsteady", differ="the two places do not look alike")
    told = replace(
        case,
        warning="Careful: strange.",
        calibrated=True,
        contrast="Beak decided.",
        arguments=(replace(argument, rows=(row, *argument.rows[1:])), *case.arguments[1:]),
    )
    return replace(report, groups=(replace(group, cases=(told,)), *others))


def test_the_order_is_warning_probability_contrast_evidence() -> None:
    page = render(clinical())
    said = [
        "Not for diagnosis",
        "Careful: strange.",
        "Probabilities, calibrated",
        "Beak decided.",
        "Evidence for",
    ]
    marked = ["●○○ unsteady", "the two places do not look alike"]
    places = [page.index(words) for words in said + marked]
    assert places == sorted(places)
    assert page.count("Not for diagnosis") == 2  # also at the end


def test_the_general_report_is_no_clinical_one_and_has_the_marks_too() -> None:
    general = render(replace(clinical(), clinical=False))
    assert "Not for diagnosis" not in general
    assert "●○○ unsteady" in general


def test_figures_of_two_classes_come_first_for_doctors() -> None:
    report = made_up()
    assert report.performance is not None
    figures = report.performance.figures
    names = [figure.name for figure in (*figures[2:], *figures[:2])]
    shown = render(replace(report, clinical=True))
    where = [shown.index(f"<dt>{name}</dt>") for name in names]
    assert where == sorted(where)


@pytest.mark.parametrize("empty", [{"groups": ()}, {"performance": None}, {"mistakes": None}])
def test_sections_that_are_missing_are_no_trouble(empty: dict[str, object]) -> None:
    outline = Outline(render(replace(clinical(), **empty)))
    targets = {item.attributes.get("id") for item in outline.elements}
    links = {item.attributes["href"] for item in outline.all("nav a")} if outline.all("nav a") else set()
    assert all(str(link)[1:] in targets for link in links)


def test_the_interval_of_an_auroc_as_hanley_and_mcneil_have_it() -> None:
    """Their example (1982, Table I): area .893, 51 diseased and 58 others, standard error .032."""
    low, high = auroc_interval(0.893, 51, 58)
    slope = 0.893 * (1 - 0.893)
    reach = (math.log(high / (1 - high)) - math.log(low / (1 - low))) / 2
    assert reach / 1.959964 * slope == pytest.approx(0.032, abs=0.001)
    assert 0 < low < 0.893 < high < 1
    assert all(math.isnan(end) for end in auroc_interval(1.0, 51, 58))
    assert all(math.isnan(end) for end in auroc_interval(0.9, 0, 58))


def test_the_command_measures_the_limit_that_it_needs(run_folder: Path, tmp_path: Path) -> None:
    run = shutil.copytree(run_folder, tmp_path / "run")
    words = [
        "report",
        str(run),
        "--audience",
        "clinical",
        "--images",
        "1",
        "--heatmaps",
        "stored",
        "--top",
        "2",
    ]
    assert main(words) == 0
    assert (run / FILE).is_file()
    page = (run / "report.html").read_text()
    assert "Not for diagnosis" in page
    assert any(word in page for word in ("●●● steady", "●●○ moves", "●○○ unsteady"))
    before = (run / FILE).stat().st_mtime_ns
    assert main(words) == 0
    assert (run / FILE).stat().st_mtime_ns == before
