"""Check that the wheel and the sdist in a folder can be used: `make package` builds them and calls this.

Both must hold every file of src/dprotonet and the licence. The wheel is then installed, without extras, into
a fresh virtual environment, and the demo runs there at its smallest: a forgotten dependency, or a file that
only a checkout has, is noticed before a release is made.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from fnmatch import fnmatch
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
KINDS = (  # what is not Python and easily forgotten
    "dprotonet/py.typed",
    "dprotonet/report/templates/*.html",
    "dprotonet/web/static/*.js",
    "dprotonet/*/plans/*/*.toml",
    "*LICENSE",
)
SIZES = {
    "--species": 4,
    "--train-per-species": 4,
    "--val-per-species": 2,
    "--test-per-species": 2,
    "--image-size": 64,
    "--epochs": 5,
    "--augmentations": 1,
    "--workers": 0,
}


def members(archive: Path) -> set[str]:
    """The files of a wheel or an sdist, by their places below src."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return set(wheel.namelist())
    with tarfile.open(archive) as opened:
        names = (member.name for member in opened if member.isfile())
        return {name.partition("/")[2].removeprefix("src/") for name in names}


def lacking(archive: Path, source: Path = SOURCE) -> list[str]:
    """What an archive should hold and does not."""
    files = (path.relative_to(source) for path in (source / "dprotonet").rglob("*") if path.is_file())
    expected = {path.as_posix() for path in files if "__pycache__" not in path.parts}
    found = members(archive)
    absent = [kind for kind in KINDS if not any(fnmatch(name, kind) for name in found)]
    return sorted(expected - found) + absent


def installed(wheel: Path, folder: Path, constraints: Path | None) -> Path:
    """Install a wheel into a new environment; the folder of its commands."""
    venv.create(folder, with_pip=True)
    commands = folder / ("Scripts" if os.name == "nt" else "bin")
    pins = ["-c", str(constraints)] if constraints else []
    quiet = ["--quiet", "--disable-pip-version-check"]
    _output([commands / "python", "-m", "pip", "install", *quiet, *pins, wheel], folder)
    return commands


def try_demo(commands: Path, folder: Path) -> dict[str, object]:
    """Run the demo in an empty folder; what it found."""
    place = _output([commands / "python", "-c", "import dprotonet; print(dprotonet.__file__)"], folder)
    if not Path(place.strip()).is_relative_to(commands.parent):
        raise SystemExit(f"dprotonet was imported from {place.strip()}, not from the wheel")
    sizes = [str(word) for pair in SIZES.items() for word in pair]
    words = ["demo", "--json", "--out", "run", "--cache", "cache", *sizes]
    results: dict[str, object] = json.loads(_output([commands / "dprotonet", *words], folder))
    if not (folder / str(results["report"])).is_file():
        raise SystemExit("the demo wrote no report")
    return results


def _output(command: list[str | Path], folder: Path) -> str:
    """Run a command away from the checkout: a PYTHONPATH would let it be imported instead of the wheel."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dist", type=Path, help="the folder of one wheel and one sdist")
    parser.add_argument("--constraints", type=Path, help="a file of versions for pip")
    arguments = parser.parse_args()
    (wheel,), (sdist,) = arguments.dist.glob("*.whl"), arguments.dist.glob("*.tar.gz")
    for archive in (wheel, sdist):
        if missing := lacking(archive):
            sys.exit(f"{archive} lacks {', '.join(missing)}")
        print(f"{archive}: every file is inside, {archive.stat().st_size / 1e6:.1f} MB", flush=True)
    constraints = arguments.constraints.resolve() if arguments.constraints else None
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        commands = installed(wheel.resolve(), folder / "env", constraints)
        print(f"{wheel}: installed into a fresh environment", flush=True)
        (folder / "elsewhere").mkdir()
        results = try_demo(commands, folder / "elsewhere")
    print(f"{wheel}: the demo runs, accuracy {results['accuracy']:.1%}")


if __name__ == "__main__":
    main()
