"""Validation accuracy of runs at each of their pushes, for docs/rivals.md. No test image is looked at.

    python docs/rival_validation.py "defaults=runs/pip-net" "1280 channels=runs/pip-net-wide"

Entries of these names in results/shared-prototypes-birds.json, beside this file, are replaced; others stay.
"""

import json
import sys
from pathlib import Path
from typing import Any

from dprotonet.experiment.runs.run_folder import RunFolder

FILE = Path(__file__).parent / "results" / "shared-prototypes-birds.json"


def validation(folder: str) -> dict[str, Any]:
    """What was given to `train`, and how it went."""
    run = RunFolder(Path(folder))
    command = json.loads((run.path / "environment.json").read_text(encoding="utf-8"))["command"]
    records = run.read_metrics()
    rounds = [item for item in records if item["event"] == "RoundDone"]
    epochs = [item for item in records if item["event"] == "EpochDone"]
    given = [word for word in command[command.index("train") + 1 :] if word != folder]
    return {
        "given": " ".join(word for word in given if word != "--out"),
        "pushes": {str(item["epoch"]): round(item["val_accuracy"], 4) for item in rounds},
        "best": round(max(item["val_accuracy"] for item in rounds), 4),
        "steps": epochs[-1]["steps"],
    }


def main() -> None:
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    for word in sys.argv[1:]:
        name, _, folder = word.partition("=")
        known[name] = validation(folder)
    FILE.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
