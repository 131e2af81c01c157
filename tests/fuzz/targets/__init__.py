"""All targets by name, and the share of inputs that each gets: cheap ones many, slow ones few."""

from collections.abc import Mapping
from importlib import import_module

from tests.fuzz.target import Opener

_CLASSES = {
    "images": "image_files.ImageFiles",
    "dicom": "dicom_files.DicomFiles",
    "settings": "settings_files.SettingsFiles",
    "tables": "table_files.TableFiles",
    "run files": "run_files.RunFiles",
    "whole runs": "whole_runs.WholeRuns",
    "weights": "weights_files.WeightsFiles",
    "onnx": "onnx_files.OnnxFiles",
    "api": "api.Api",
    "commands": "commands.Commands",
}
SHARES: Mapping[str, float] = {
    "images": 0.62,
    "dicom": 0.13,
    "settings": 0.04,
    "tables": 0.04,
    "run files": 0.11,
    "whole runs": 0.002,
    "weights": 0.045,
    "onnx": 0.003,
    "api": 0.008,
    "commands": 0.002,
}


def opener(name: str) -> Opener:
    """The class of a target; only what it needs is imported."""
    module, _, kind = _CLASSES[name].partition(".")
    found: Opener = getattr(import_module(f"tests.fuzz.targets.{module}"), kind)
    return found
