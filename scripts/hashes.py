"""constraints.txt with hashes, for `pip install --require-hashes`, as pip says what it would install.

    python scripts/hashes.py > constraints-hashes.txt
    python scripts/hashes.py --for manylinux_2_28_x86_64:3.12 --for macosx_11_0_arm64:3.12 > …

Without `--for` the hashes are those of this platform and Python; each `--for` adds those of another one.
Torch and torchvision are left out: which build of theirs is right depends on the machine (CPU, CUDA, ROCm,
macOS), each has its own hashes, and those for CUDA want further packages. They are installed first, as
docs/install.md says.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
APART = ("torch", "torchvision")


def pinned(text: str) -> list[str]:
    """The lines of constraints.txt whose hashes do not depend on the machine."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and line.partition("==")[0].lower() not in APART]


def hashes(pins: list[str], place: str = "") -> dict[str, str]:
    """By `name==version` the SHA-256 of the file that pip would install on a PLATFORM:PYTHON, or here."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, report = Path(folder) / "pins.txt", Path(folder) / "report.json"
        wanted.write_text("\n".join(pins), encoding="utf-8")
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps"]
        command += ["--quiet", "--report", str(report), "-r", str(wanted)]
        if place:
            platform, _, python = place.partition(":")
            command += ["--target", folder, "--only-binary", ":all:"]
            command += ["--platform", platform, "--python-version", python]
        subprocess.run(command, check=True, stdout=sys.stderr)
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {
        f"{one['metadata']['name']}=={one['metadata']['version']}": one["download_info"]["archive_info"][
            "hashes"
        ]["sha256"]
        for one in found
    }


def written(found: Mapping[str, set[str]]) -> str:
    """As pip reads it."""
    lines = ["# Made by scripts/hashes.py; for pip install --require-hashes --no-deps -r (docs/install.md)."]
    for pin in sorted(found, key=str.lower):
        lines.append(" \\\n    ".join([pin, *(f"--hash=sha256:{one}" for one in sorted(found[pin]))]))
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--for", dest="places", action="append", default=[], metavar="PLATFORM:PYTHON")
    arguments = parser.parse_args()
    pins = pinned((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    found: dict[str, set[str]] = defaultdict(set)
    for place in ["", *arguments.places]:
        for pin, value in hashes(pins, place).items():
            found[pin].add(value)
    print(written(found), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
