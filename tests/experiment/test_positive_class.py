"""Which of two classes is positive when nobody says: never the healthy one, and the reason is told."""

import json
from pathlib import Path

import pytest

from dprotonet.experiment.evaluation.positive_class import means_healthy, positive_class
from dprotonet.report.performance import stored_positive

HEALTHY = [
    "normal",
    "NORMAL",
    "Normal lung",
    "healthy_leaf",
    "benign tumour",
    "HER2-negative",
    "Control",
    "Uninfected",
    "No Finding",
    "no_finding",
    "NoFinding",
    "no-findings",
    "Non-pathological",
    "nonpathological",
    "NonCOVID",
    "not infected",
    "without disease",
    "no",
    "none",
    "1.normal",
    "tumour-free",
    "Lesion absent",
    "clear",
    "good",
    "benign_nevus",
]
OTHERS = [
    "abnormal",
    "Ab-normal",
    "unhealthy",
    "un-healthy",
    "not normal",
    "Non-benign",
    "not_healthy",
    "paranormal",
    "lung opacity",
    "Nodule",
    "nonagon",
    "notable",
    "controller",
    "positive",
    "yes",
    "1",
    "",
    "–",
    "free fluid",
    "clear cell carcinoma",
    "absent reflex",
    "margins not clear",
]


@pytest.mark.parametrize("name", HEALTHY)
def test_names_that_mean_healthy(name: str) -> None:
    assert means_healthy(name)


@pytest.mark.parametrize("name", OTHERS)
def test_names_that_do_not(name: str) -> None:
    assert not means_healthy(name)


@pytest.mark.parametrize(
    ("classes", "name", "reason"),
    [
        (("lung opacity", "normal"), "lung opacity", "normal means healthy"),
        (("normal", "pneumonia"), "pneumonia", "normal means healthy"),
        (("abnormal", "normal"), "abnormal", "normal means healthy"),
        (("Parasitized", "Uninfected"), "Parasitized", "Uninfected means healthy"),
        (("melanoma", "nevus"), "melanoma", "nevus means healthy"),
        (("bad", "good"), "bad", "good means healthy"),
        (("cat", "dog"), "dog", "the second of the two, as neither name means healthy"),
        (("benign", "normal"), "normal", "the second of the two, as both names mean healthy"),
    ],
)
def test_the_choice_and_its_reason(classes: tuple[str, str], name: str, reason: str) -> None:
    assert positive_class(classes) == (name, reason)


def test_who_asks_for_the_healthy_one_gets_it() -> None:
    assert positive_class(("disease", "normal"), "normal") == ("normal", "asked for")


@pytest.mark.parametrize(("reason", "kept"), [("asked for", "normal"), ("the second of the two", None)])
def test_a_report_keeps_a_choice_and_no_default_of_an_older_file(
    tmp_path: Path, reason: str, kept: str | None
) -> None:
    (tmp_path / "evaluation").mkdir()
    content = {"positive": "normal", "positive_reason": reason}
    (tmp_path / "evaluation" / "test.json").write_text(json.dumps(content), encoding="utf-8")
    assert stored_positive(tmp_path, ("disease", "normal")) == kept
