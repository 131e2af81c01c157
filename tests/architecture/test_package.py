"""What a release consists of: the files of wheel and sdist, their licence, one version everywhere."""

import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import dprotonet

ROOT = Path(__file__).resolve().parents[2]
BUILD = "from setuptools.build_meta import build_sdist, build_wheel; build_sdist('dist'); build_wheel('dist')"


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_package", ROOT / "scripts" / "check_package.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and sdist of a copy: setuptools leaves folders behind, and takes up old ones, where it builds."""
    copy = tmp_path_factory.mktemp("copy")
    for path in (path for path in ROOT.iterdir() if path.is_file()):
        shutil.copy(path, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    built = subprocess.run(
        [sys.executable, "-c", BUILD], cwd=copy, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return copy / "dist"


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_every_file_is_inside(kind: str, dist: Path, check: ModuleType) -> None:
    (archive,) = dist.glob(kind)
    assert check.lacking(archive) == []
    inside = check.members(archive)
    assert [name for name in inside if name.startswith("tests/") or "__pycache__" in name] == []


def test_a_forgotten_file_is_noticed(dist: Path, tmp_path: Path, check: ModuleType) -> None:
    (wheel,) = dist.glob("*.whl")
    (tmp_path / "dprotonet" / "web").mkdir(parents=True)
    (tmp_path / "dprotonet" / "web" / "new.css").touch()
    assert check.lacking(wheel, source=tmp_path) == ["dprotonet/web/new.css"]
    empty = tmp_path / "empty.whl"
    zipfile.ZipFile(empty, "w").close()
    assert check.lacking(empty, source=tmp_path) == ["dprotonet/web/new.css", *check.KINDS]


def test_licence_and_version(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    metadata = zipfile.ZipFile(wheel).read(f"dprotonet-{dprotonet.__version__}.dist-info/METADATA").decode()
    assert "License-Expression: Apache-2.0\n" in metadata
    assert f"Version: {dprotonet.__version__}\n" in metadata
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None
    assert cited[1] == dprotonet.__version__
    assert f"## {dprotonet.__version__} " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
