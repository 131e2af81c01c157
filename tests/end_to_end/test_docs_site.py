"""`make docs`: the site builds strictly, has every page, and loads nothing from elsewhere."""

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import dprotonet as dp

pytest.importorskip("mkdocs", reason="needs the extra docs")
pytest.importorskip("mkdocstrings", reason="needs the extra docs")
ROOT = Path(__file__).resolve().parents[2]
SECTIONS = (dp.DataConfig, dp.NetworkConfig, dp.TrainingConfig, dp.AugmentationConfig, dp.ExplainingConfig)


def built(folder: Path, *, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    result = built(folder)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def test_every_page_is_in_the_navigation(site: Path) -> None:
    """A page that nobody finds is a warning, so the strict build has seen to it; here it is counted."""
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    home = (site / "index.html").read_text(encoding="utf-8")
    assert pages
    assert [str(page) for page in sorted(pages) if f'href="{page.as_posix()}"' not in home] == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loading = re.compile(
        r"<(?:script|img|iframe)[^>]*\ssrc=\"?(?:https?:)?//|<link[^>]*\shref=\"?(?:https?:)?//"
    )
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    assert [page.name for page in pages if loading.search(page.read_text(encoding="utf-8"))] == []
    styles = sorted(site.rglob("*.css"))
    assert styles
    assert [path.name for path in styles if re.search(r"url\(\"?https?:", path.read_text("utf-8"))] == []


def test_scripts_are_no_pages_and_results_are_there(site: Path) -> None:
    assert list(site.rglob("*.py")) == []
    for path in sorted((ROOT / "docs" / "results").glob("*.json")):
        assert json.loads((site / "results" / path.name).read_text(encoding="utf-8")) is not None


def test_every_public_name_and_every_setting_is_in_the_reference(site: Path) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in sorted((site / "reference").glob("*.html")))
    missing = [name for name in dp.__all__ if f'id="dprotonet.{name}"' not in text]
    assert missing == ["__version__"]
    keys = [f"dprotonet.{kind.__name__}.{item.name}" for kind in SECTIONS for item in fields(kind)]
    assert [key for key in keys if f'id="{key}"' not in text] == []


def test_the_reference_tells_how_explainers_are_called(site: Path) -> None:
    text = (site / "reference" / "explainers.html").read_text(encoding="utf-8")
    called = [
        f"{name}.{way}" for name in ("MDM", "CAM", "Rise") for way in ("__call__", "attribute", "explain")
    ]
    assert [name for name in called if f'id="dprotonet.{name}"' not in text] == []


def test_a_broken_link_and_a_broken_anchor_fail_the_build(tmp_path: Path) -> None:
    """The strictness is what this file rests on."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Home\n\n[gone](gone.md) [nowhere](#nowhere)\n")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    validation = re.search(r"^validation:\n(?:  .*\n)+", settings, flags=re.MULTILINE)
    assert validation is not None
    (tmp_path / "mkdocs.yml").write_text(f"site_name: broken\n{validation[0]}")
    result = built(tmp_path / "site", config=tmp_path / "mkdocs.yml")
    assert result.returncode != 0
    assert "gone.md" in result.stderr
    assert "#nowhere" in result.stderr


def test_links_out_of_docs_are_copied_or_become_pages(tmp_path: Path) -> None:
    """A page may link to README, a config or a source file of the repository."""
    (tmp_path / "docs").mkdir()
    page = "# Page\n\n[a](../README.md#python) [b](../configs/joint/general.toml) [c](../nowhere.toml)\n"
    (tmp_path / "docs" / "page.md").write_text(page)
    (tmp_path / "mkdocs.yml").write_text(f"site_name: some\nhooks: ['{ROOT / 'docs' / 'site_pages.py'}']\n")
    folder = tmp_path / "site"
    result = built(folder, config=tmp_path / "mkdocs.yml")
    assert "nowhere.toml" in result.stderr  # what is not in the repository is complained of
    assert "general.toml" not in result.stderr
    copied = folder / "repository" / "configs" / "joint" / "general.toml"
    assert copied.read_bytes() == (ROOT / "configs" / "joint" / "general.toml").read_bytes()
    made = (folder / "page" / "index.html").read_text(encoding="utf-8")
    assert 'href="../repository/configs/joint/general.toml"' in made
    assert re.search(r'href="\.\./(?:\./)?#python"', made)
