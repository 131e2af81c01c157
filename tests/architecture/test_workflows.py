"""The forge's workflows are YAML, call targets that exist, and try the versions of Python we claim."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _targets(text: str) -> Iterator[str]:
    return (found[1] for found in re.finditer(r"^make ([\w-]+)", text, re.MULTILINE))


@pytest.mark.parametrize("path", WORKFLOWS, ids=[path.stem for path in WORKFLOWS])
def test_steps_call_targets_of_the_makefile(path: Path) -> None:
    known = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    steps = [step for job in _read(path)["jobs"].values() for step in job["steps"]]
    called = {target for step in steps for target in _targets(step.get("run", ""))}
    assert called
    assert called <= set(known)


def test_tests_run_on_the_versions_of_python_we_claim() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    claimed = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    jobs = _read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == claimed
    assert project["requires-python"] == f">={claimed[0]}"


def test_ci_checks_before_it_tests() -> None:
    assert list(_targets((ROOT / ".ci" / "run").read_text(encoding="utf-8"))) == ["check", "test"]


def test_hooks_are_the_checks_of_make() -> None:
    """Their commands are lines of `make check`, but for formatting, which a hook does rather than checks."""
    (repository,) = _read(ROOT / ".pre-commit-config.yaml")["repos"]
    tools = [Path(hook["entry"].split()[0]).name for hook in repository["hooks"]]
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ncheck:")[2].partition("\n\n")[0]
    assert tools == re.findall(r"\$\(BIN\)/([\w-]+)", recipe)


def test_forms_of_issues_ask_something() -> None:
    forms = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    assert forms
    for form in forms:
        assert all(field["attributes"]["label"] for field in _read(form)["body"])
