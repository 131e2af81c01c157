"""DProtoNet: image classifiers that show their reasons.

    import dprotonet as dp
    model = dp.load("runs/birds")
    prediction = model.predict("bird.png")    # class, probabilities, evidence
    (explained,) = model.explain("bird.png")  # with heatmaps of the prototypes that decided
    dp.MDM(any_classifier)(images)            # the decoder alone

Names are imported when they are first used, so that `import dprotonet` stays light. It does one thing
at once: torchvision and timm can be imported after it beside any build of torch (`dprotonet.compat`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dprotonet.compat import guard_imports
from dprotonet.version import __version__

guard_imports()

_HOME = {
    "load": "dprotonet.experiment.api",
    "train": "dprotonet.experiment.api",
    "Model": "dprotonet.experiment.model",
    "Prediction": "dprotonet.experiment.trained.prediction",
    "EvidenceItem": "dprotonet.experiment.trained.evidence",
    "ExplainedPrediction": "dprotonet.experiment.explaining.explain",
    "MDM": "dprotonet.interpretation.mdm",
    "preset": "dprotonet.interpretation.mdm",
    "Explanation": "dprotonet.interpretation.base",
    "Config": "dprotonet.config",
    "DProtoNet": "dprotonet.network",
    "Birds": "dprotonet.data.birds",
    "UserError": "dprotonet.errors",
}
__all__ = [  # spelt out for type checkers; the same names as _HOME
    "MDM",
    "Birds",
    "Config",
    "DProtoNet",
    "EvidenceItem",
    "ExplainedPrediction",
    "Explanation",
    "Model",
    "Prediction",
    "UserError",
    "__version__",
    "load",
    "preset",
    "train",
]

if TYPE_CHECKING:
    from dprotonet.config import Config
    from dprotonet.data.birds import Birds
    from dprotonet.errors import UserError
    from dprotonet.experiment.api import load, train
    from dprotonet.experiment.explaining.explain import ExplainedPrediction
    from dprotonet.experiment.model import Model
    from dprotonet.experiment.trained.evidence import EvidenceItem
    from dprotonet.experiment.trained.prediction import Prediction
    from dprotonet.interpretation.base import Explanation
    from dprotonet.interpretation.mdm import MDM, preset
    from dprotonet.network import DProtoNet


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dprotonet' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
