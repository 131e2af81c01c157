"""DProtoNet: image classifiers that show their reasons.

    import dprotonet as dp
    model = dp.train(out="runs/birds", data="folder:photos", mode="frozen")
    model = dp.load("runs/birds")
    prediction = model.predict("bird.png")    # class, probabilities, evidence
    (explained,) = model.explain("bird.png")  # with heatmaps of the prototypes that decided
    dp.MDM(any_classifier)(images)            # the decoder alone

Everything that users need is a name of this package; what lies below may move. Names are imported when they
are first used, so that `import dprotonet` stays light. It does one thing at once: torchvision and timm can be
imported after it beside any build of torch (`dprotonet.compat`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dprotonet.compat import guard_imports
from dprotonet.version import __version__

guard_imports()

_HOME = {
    # train and load
    "load": "dprotonet.experiment.api",
    "train": "dprotonet.experiment.api",
    "Model": "dprotonet.experiment.model",
    "Prediction": "dprotonet.experiment.trained.prediction",
    "EvidenceItem": "dprotonet.experiment.trained.evidence",
    "Finding": "dprotonet.experiment.trained.findings",
    "Findings": "dprotonet.experiment.trained.findings",
    "ExplainedFindings": "dprotonet.experiment.explaining.explain_findings",
    "ExplainedPrediction": "dprotonet.experiment.explaining.explain",
    "OnnxModel": "dprotonet.experiment.transfer.export.onnx_model",
    "UserError": "dprotonet.errors",
    "main": "dprotonet.cli.main",
    # what `train(on_event=…)` sees
    "Preparing": "dprotonet.experiment.runs.trainer",
    "Trial": "dprotonet.experiment.runs.choose_mode",
    "StepDone": "dprotonet.training.events",
    "EpochDone": "dprotonet.training.events",
    "PushDone": "dprotonet.training.events",
    "RoundDone": "dprotonet.training.events",
    # settings
    "Config": "dprotonet.config",
    "DataConfig": "dprotonet.config",
    "NetworkConfig": "dprotonet.config",
    "TrainingConfig": "dprotonet.config",
    "AugmentationConfig": "dprotonet.config",
    "ExplainingConfig": "dprotonet.config",
    # explain any classifier
    "Classifier": "dprotonet.experiment.trained.classifier",
    "classifier": "dprotonet.experiment.api",
    "saliency": "dprotonet.experiment.explaining.saliency",
    "Saliency": "dprotonet.experiment.explaining.saliency",
    "Explanation": "dprotonet.interpretation.base",
    "MDM": "dprotonet.interpretation.mdm",
    "preset": "dprotonet.interpretation.mdm",
    "CAM": "dprotonet.interpretation.cam",
    "Rise": "dprotonet.interpretation.rise",
    "similarity_maps": "dprotonet.experiment.api",
    "explainer": "dprotonet.experiment.image_explainer",
    "ExplainedImage": "dprotonet.experiment.image_explainer",
    "ImageExplainer": "dprotonet.experiment.image_explainer",
    "save_fiftyone": "dprotonet.experiment.integrations",
    "log_mlflow": "dprotonet.experiment.integrations",
    # in scikit-learn, with the extra sklearn
    "ImageClassifier": "dprotonet.experiment.estimator",
    "Task": "dprotonet.interpretation.task",
    # nodes: what is explained
    "ClassNode": "dprotonet.interpretation.nodes",
    "ContrastNode": "dprotonet.interpretation.contrast_node",
    "TargetNode": "dprotonet.interpretation.nodes",
    "CallableNode": "dprotonet.interpretation.nodes",
    "ArrayNode": "dprotonet.interpretation.nodes",
    "ModuleNode": "dprotonet.interpretation.nodes",
    "RegionNode": "dprotonet.interpretation.nodes",
    "PrototypeNode": "dprotonet.interpretation.nodes",
    # data and networks
    "open_data": "dprotonet.experiment.api",
    "Birds": "dprotonet.data.birds",
    "Sample": "dprotonet.data.base",
    "Splits": "dprotonet.data.base",
    "read_image": "dprotonet.data.image",
    "DProtoNet": "dprotonet.network",
    "build_network": "dprotonet.experiment.build.network",
}
__all__ = [  # spelt out for type checkers; the same names as _HOME
    "CAM",
    "MDM",
    "ArrayNode",
    "AugmentationConfig",
    "Birds",
    "CallableNode",
    "ClassNode",
    "Classifier",
    "Config",
    "ContrastNode",
    "DProtoNet",
    "DataConfig",
    "EpochDone",
    "EvidenceItem",
    "ExplainedFindings",
    "ExplainedImage",
    "ExplainedPrediction",
    "ExplainingConfig",
    "Explanation",
    "Finding",
    "Findings",
    "ImageClassifier",
    "ImageExplainer",
    "Model",
    "ModuleNode",
    "NetworkConfig",
    "OnnxModel",
    "Prediction",
    "Preparing",
    "PrototypeNode",
    "PushDone",
    "RegionNode",
    "Rise",
    "RoundDone",
    "Saliency",
    "Sample",
    "Splits",
    "StepDone",
    "TargetNode",
    "Task",
    "TrainingConfig",
    "Trial",
    "UserError",
    "__version__",
    "build_network",
    "classifier",
    "explainer",
    "load",
    "log_mlflow",
    "main",
    "open_data",
    "preset",
    "read_image",
    "saliency",
    "save_fiftyone",
    "similarity_maps",
    "train",
]

if TYPE_CHECKING:
    from dprotonet.cli.main import main
    from dprotonet.config import (
        AugmentationConfig,
        Config,
        DataConfig,
        ExplainingConfig,
        NetworkConfig,
        TrainingConfig,
    )
    from dprotonet.data.base import Sample, Splits
    from dprotonet.data.birds import Birds
    from dprotonet.data.image import read_image
    from dprotonet.errors import UserError
    from dprotonet.experiment.api import classifier, load, open_data, similarity_maps, train
    from dprotonet.experiment.build.network import build_network
    from dprotonet.experiment.estimator import ImageClassifier
    from dprotonet.experiment.explaining.explain import ExplainedPrediction
    from dprotonet.experiment.explaining.explain_findings import ExplainedFindings
    from dprotonet.experiment.explaining.saliency import Saliency, saliency
    from dprotonet.experiment.image_explainer import ExplainedImage, ImageExplainer, explainer
    from dprotonet.experiment.integrations import log_mlflow, save_fiftyone
    from dprotonet.experiment.model import Model
    from dprotonet.experiment.runs.choose_mode import Trial
    from dprotonet.experiment.runs.trainer import Preparing
    from dprotonet.experiment.trained.classifier import Classifier
    from dprotonet.experiment.trained.evidence import EvidenceItem
    from dprotonet.experiment.trained.findings import Finding, Findings
    from dprotonet.experiment.trained.prediction import Prediction
    from dprotonet.experiment.transfer.export.onnx_model import OnnxModel
    from dprotonet.interpretation.base import Explanation
    from dprotonet.interpretation.cam import CAM
    from dprotonet.interpretation.contrast_node import ContrastNode
    from dprotonet.interpretation.mdm import MDM, preset
    from dprotonet.interpretation.nodes import (
        ArrayNode,
        CallableNode,
        ClassNode,
        ModuleNode,
        PrototypeNode,
        RegionNode,
        TargetNode,
    )
    from dprotonet.interpretation.rise import Rise
    from dprotonet.interpretation.task import Task
    from dprotonet.network import DProtoNet
    from dprotonet.training.events import EpochDone, PushDone, RoundDone, StepDone


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dprotonet' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
