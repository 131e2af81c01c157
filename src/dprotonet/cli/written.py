"""What a command wrote into a run folder, for people or as JSON."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol


class Telling(Protocol):
    """The run, and how to tell."""

    @property
    def run(self) -> Path: ...
    @property
    def json(self) -> bool: ...


def tell_written(arguments: Telling, content: Mapping[str, Any], sentence: str) -> None:
    """One JSON object with the run, or a sentence about it."""
    if arguments.json:
        json.dump({"run": str(arguments.run), **content}, sys.stdout, ensure_ascii=False)
        print()
    else:
        print(f"{arguments.run}: {sentence}")
