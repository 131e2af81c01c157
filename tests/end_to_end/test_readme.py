"""What README says works: its Python runs, its links lead somewhere."""

import re
from pathlib import Path

import pytest
from PIL import Image

from dprotonet.data.birds import Birds

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=[f"block {n + 1}" for n in range(len(BLOCKS))])
def test_the_python_of_the_readme_runs(
    code: str, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(code.splitlines()) <= 12
    monkeypatch.chdir(tmp_path)
    Image.fromarray(Birds(species=4, per_species=1)[0].image.permute(1, 2, 0).numpy()).save("bird.png")
    exec(code.replace("runs/demo", str(run_folder)), {})


def test_links_and_pictures_exist() -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).is_file()] == []
