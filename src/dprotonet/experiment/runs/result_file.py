"""What a finished run of many came to: RUN/result.json, with the config it was trained by.

Its presence says that the run needs no more work; a result of another config is never taken for this one.
"""

import json
from pathlib import Path
from typing import Any

from dprotonet.config import Config, by_name, to_tables
from dprotonet.errors import UserError
from dprotonet.experiment.settings.recipes import config_from, final_config
from dprotonet.files import write_text

RESULT = "result.json"
_OF_SPEED = ("training.workers", "training.memory_format")  # change how fast, never what is learned


def write_result(place: Path, config: Config, found: dict[str, Any]) -> None:
    content = {"config": to_tables(final_config(config)), **found}
    write_text(place / RESULT, json.dumps(content, ensure_ascii=False, indent=1))


def read_result(place: Path, config: Config) -> dict[str, Any] | None:
    """What a finished run found; None if it is not finished. One of another config is an error."""
    try:
        result: dict[str, Any] = json.loads((place / RESULT).read_text(encoding="utf-8"))
        # A setting that is newer than the result had its default then.
        trained = by_name(config_from(result["config"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{place / RESULT} is damaged; remove it to evaluate the run anew") from None
    for name, value in by_name(final_config(config)).items():
        if trained[name] != value and name not in _OF_SPEED:
            raise UserError(f"{place} was trained with another {name}; name another --out, or remove it")
    return result
