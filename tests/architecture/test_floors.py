"""The building stands: floors, sizes of files, lightness of the import, freshness of generated pages."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_floors_hold() -> None:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_files_stay_below_400_lines() -> None:
    long = [path.name for path in SOURCES if len(path.read_text(encoding="utf-8").splitlines()) > 400]
    assert SOURCES
    assert long == []


def test_every_module_says_what_it_is() -> None:
    bare = [str(path) for path in SOURCES if not path.read_text(encoding="utf-8").lstrip().startswith('"""')]
    assert bare == []


def test_import_and_help_stay_light() -> None:
    """Neither torch nor anything heavy is imported for `import dprotonet` and `dprotonet --help`."""
    code = (
        "import sys, dprotonet, dprotonet.cli.main as m; m.main(['--help']); "
        "heavy = {'torch', 'timm', 'matplotlib', 'numpy', 'tyro', 'rich'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_public_names_exist() -> None:
    import dprotonet

    for name in dprotonet.__all__:
        assert getattr(dprotonet, name) is not None
    assert set(dprotonet.__all__) == set(dprotonet._HOME) | {"__version__"}


def test_the_list_of_departures_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "docs" / "collect_fidelity.py"), "--check"]
    result = subprocess.run(command, check=False)
    assert result.returncode == 0, "run python docs/collect_fidelity.py"


def test_only_figures_draw() -> None:
    drawing = [path for path in SOURCES if "ImageDraw" in path.read_text(encoding="utf-8")]
    assert {path.parent.name for path in drawing} == {"figures"}


def test_devices_are_named_only_where_learning_and_running_happen() -> None:
    """No `.cuda()` anywhere: users have CUDA, MPS or neither."""
    assert [path.name for path in SOURCES if ".cuda(" in path.read_text(encoding="utf-8")] == []
