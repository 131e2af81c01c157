"""`make audit`: licences of what is installed, known vulnerabilities, a bill of materials, hashes.

Prints one JSON and writes it, with the bill of materials (CycloneDX), into a folder. Where no database of
vulnerabilities can be reached that is said, and the exit code is 3: nothing is taken for safe because nobody
looked. The tools live in an environment of their own (`--tools`), not among what they look at.
"""

import argparse
import json
import re
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOT_CHECKED = 3
_OWN = "dprotonet"
_LONGEST = 60  # letters of a licence by name; more is its text
_CLASSIFIER = "License :: OSI Approved :: "
_SPDX = {  # where a name has one meaning
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "MIT License": "MIT",
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD-3-Clause": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}
UNKNOWN = "unknown"


def licence_of(package: Distribution) -> str:
    """The SPDX expression that a package states, or its licence's name; `unknown` where it states none."""
    told = package.metadata
    if expression := told.get("License-Expression"):
        return str(expression)
    named = [
        one.removeprefix(_CLASSIFIER) for one in told.get_all("Classifier", []) if one.startswith(_CLASSIFIER)
    ]
    written = (told.get("License") or "").strip()
    if written and len(written) <= _LONGEST and written != "UNKNOWN":
        return _SPDX.get(written, written)
    return " AND ".join(_SPDX.get(name, name) for name in named) or UNKNOWN


def licences(packages: Iterable[Distribution]) -> dict[str, dict[str, str]]:
    """By package its version and licence."""
    found = {
        one.name: {"version": one.version, "licence": licence_of(one)} for one in packages if one.name != _OWN
    }
    return dict(sorted(found.items(), key=lambda pair: pair[0].lower()))


def judged(answer: Mapping[str, Any] | None, reason: str = "") -> dict[str, Any]:
    """What pip-audit's JSON comes to: which packages were looked up, which have known vulnerabilities."""
    packages = [] if answer is None else [one for one in answer["dependencies"] if one["name"] != _OWN]
    looked_up = [one for one in packages if "skip_reason" not in one]
    skipped = Counter(re.sub(r":.*", "", one["skip_reason"]) for one in packages if "skip_reason" in one)
    vulnerable = {one["name"]: [told["id"] for told in one["vulns"]] for one in looked_up if one["vulns"]}
    if not looked_up:
        state = "NOT CHECKED: no database of vulnerabilities was reached"
    elif vulnerable:
        state = f"{len(vulnerable)} of {len(looked_up)} packages have known vulnerabilities"
    else:
        state = f"none known in {len(looked_up)} packages"
    if looked_up and skipped:
        state += f"; NOT CHECKED: {sum(skipped.values())} packages"
    return {
        "state": state,
        "looked up": len(looked_up),
        "skipped": dict(skipped),
        "vulnerable": vulnerable,
        **({"reason": reason} if reason else {}),
    }


def vulnerabilities(tools: Path) -> dict[str, Any]:
    """By pip-audit, of the packages beside this interpreter."""
    tool = tools / "pip-audit"
    if not tool.is_file():
        return judged(None, f"pip-audit is not in {tools.name}; make audit installs it")
    place = sysconfig.get_paths()["purelib"]
    command = [str(tool), "--path", place, "--format", "json", "--progress-spinner", "off", "--timeout", "10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return judged(json.loads(done.stdout))
    except ValueError:
        lines = done.stderr.strip().splitlines()
        return judged(
            None, re.sub(r"\S*://\S*|host='[^']*'", "…", lines[-1])[:200] if lines else "it said nothing"
        )


def bill_of_materials(tools: Path, out: Path) -> dict[str, Any]:
    """By cyclonedx-py into a file; what it lacks of the required fields is an error."""
    tool = tools / "cyclonedx-py"
    if not tool.is_file():
        return {"state": f"NOT MADE: cyclonedx-py is not in {tools.name}; make audit installs it"}
    command = [str(tool), "environment", sys.executable, "--pyproject", str(ROOT / "pyproject.toml")]
    command += [
        "--output-format",
        "JSON",
        "--output-reproducible",
        "--short-PURLs",
        "--output-file",
        str(out),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"state": f"NOT MADE: {(done.stderr.strip().splitlines() or ['no reason'])[-1][:200]}"}
    content = json.loads(out.read_text(encoding="utf-8"))
    return {
        "state": f"CycloneDX {content['specVersion']}",
        "file": out.name,
        "components": len(checked(content)),
    }


def checked(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The components of a bill of materials that has what the format asks for."""
    if content.get("bomFormat") != "CycloneDX" or "specVersion" not in content:
        raise ValueError("it is not a bill of materials in CycloneDX")
    components: list[Mapping[str, Any]] = content.get("components", [])
    if not components or not all({"type", "name", "version"} <= one.keys() for one in components):
        raise ValueError("a component has no type, name or version")
    return components


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "audit")
    parser.add_argument("--tools", type=Path, default=ROOT / "build" / "audit-tools" / "bin")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = licences(distributions())
    content = {
        "vulnerabilities": vulnerabilities(arguments.tools),
        "bill of materials": bill_of_materials(arguments.tools, arguments.out / "sbom.json"),
        "licences": dict(Counter(one["licence"] for one in found.values()).most_common()),
        "unknown licences": [name for name, one in found.items() if one["licence"] == UNKNOWN],
        "packages": found,
    }
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (arguments.out / "audit.json").write_text(text + "\n", encoding="utf-8")
    print(text)
    for name in ("vulnerabilities", "bill of materials"):
        print(f"{name}: {content[name]['state']}", file=sys.stderr)
    return _code(content["vulnerabilities"], content["bill of materials"])


def _code(known: Mapping[str, Any], bill: Mapping[str, Any]) -> int:
    if known["vulnerable"]:
        return 1
    return NOT_CHECKED if "NOT CHECKED" in known["state"] or "NOT MADE" in bill["state"] else 0


if __name__ == "__main__":
    sys.exit(main())
