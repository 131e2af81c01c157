"""`make audit`: nothing is taken for safe because nobody looked; hashes as pip reads them."""

import importlib.util
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    return script("audit")


def answer(*packages: dict[str, Any]) -> dict[str, Any]:
    return {"dependencies": list(packages)}


SAFE: dict[str, Any] = {"name": "a", "version": "1", "vulns": []}
BAD: dict[str, Any] = {"name": "b", "version": "1", "vulns": [{"id": "X-1"}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on the registry and could not be audited: c (1)"}


@pytest.mark.parametrize(
    ("found", "state", "code"),
    [
        (answer(SAFE), "none known in 1 packages", 0),
        (answer(SAFE, BAD), "1 of 2 packages have known vulnerabilities", 1),
        (answer(SAFE, SKIPPED), "none known in 1 packages; NOT CHECKED: 1 packages", 3),
        (answer(SKIPPED), "NOT CHECKED: no database of vulnerabilities was reached", 3),
        (None, "NOT CHECKED: no database of vulnerabilities was reached", 3),
    ],
)
def test_what_was_not_looked_up_is_not_safe(
    audit: ModuleType, found: dict[str, Any] | None, state: str, code: int
) -> None:
    told = audit.judged(found)
    assert told["state"] == state
    assert audit._code(told, {"state": "CycloneDX 1.6"}) == code


def test_a_missing_tool_is_said(audit: ModuleType, tmp_path: Path) -> None:
    assert audit.vulnerabilities(tmp_path)["state"].startswith("NOT CHECKED")
    bill = audit.bill_of_materials(tmp_path, tmp_path / "sbom.json")
    assert bill["state"].startswith("NOT MADE")
    assert audit._code(audit.judged(answer(SAFE)), bill) == audit.NOT_CHECKED


def test_licences_by_spdx(audit: ModuleType) -> None:
    found = audit.licences([distribution(name) for name in ("safetensors", "filelock", "dprotonet")])
    assert "dprotonet" not in found
    assert found["safetensors"]["licence"] == "Apache-2.0"
    assert all(one["licence"] != audit.UNKNOWN for one in found.values())


@pytest.mark.parametrize("content", [{}, {"bomFormat": "CycloneDX", "specVersion": "1.6"}])
def test_a_bill_of_materials_has_what_it_needs(audit: ModuleType, content: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"it is not|a component"):
        audit.checked(content)


def test_hashes() -> None:
    hashes = script("hashes")
    assert hashes.pinned("torch==2\nTorchvision==1\n\ntorchcam==0.5\na==1\n") == ["torchcam==0.5", "a==1"]
    assert hashes.written({"b==1": {"2", "1"}, "A==2": {"3"}}).splitlines()[1:] == [
        "A==2 \\",
        "    --hash=sha256:3",
        "b==1 \\",
        "    --hash=sha256:1 \\",
        "    --hash=sha256:2",
    ]


def test_the_file_of_hashes_has_the_constraints() -> None:
    hashes, path = script("hashes"), ROOT / "constraints-hashes.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    pins = [line.removesuffix(" \\").lower().replace("_", "-") for line in lines if "==" in line]
    wanted = hashes.pinned((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    assert sorted(pins) == sorted(one.lower().replace("_", "-") for one in wanted)
    assert sum("--hash=sha256:" in line for line in lines) >= len(pins)
