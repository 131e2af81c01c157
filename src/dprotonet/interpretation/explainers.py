"""The one table of explainers: what makes each, what it watches, its label, what it costs and needs.

`saliency`, `compare`, `sanity`, `serve`, the page and all help texts read it. Nothing heavy is imported
before an explainer is made, so that help texts do not wait for torch. To add one: a file with a class, and a
line here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from dprotonet.errors import UserError

if TYPE_CHECKING:
    from dprotonet.interpretation.explainer import Explainer
    from dprotonet.interpretation.outputs import GivenTask, Model

Need = Literal["gradient", "feature map", "attention", "prototypes"]


@dataclass(frozen=True)
class ExplainerEntry:
    """A line of the table; `home` is the file of this room and the class or function in it, `file:Class`.

    It is called with the model, `classes`, `task`, its `settings`, and what it `takes` from those who know
    the network. `package` is one that has to be installed besides ours.
    """

    home: str
    label: str
    cost: str  # forward passes per image, in words
    watches: Literal["probability", "logit"] = "logit"
    needs: tuple[Need, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    takes: tuple[str, ...] = ()
    package: str = ""
    slow: bool = False  # hundreds of passes: not to be asked for lightly
    asks: bool = True  # whether the map depends on the class that is asked for
    optimises: tuple[str, ...] = ()  # of what it does to images: "keep black", as `asked` has it
    signed: bool = True  # whether what lowers a value has another map than what raises it

    @property
    def shown(self) -> str:
        """What a list for people says."""
        return f"{self.label} (slow)" if self.slow else self.label

    @property
    def installed(self) -> bool:
        return not self.package or find_spec(self.package) is not None

    def make(
        self,
        model: "Model",
        offered: Mapping[str, Any] | None = None,
        *,
        classes: Sequence[str] = (),
        task: "GivenTask" = None,
    ) -> "Explainer":
        """The explainer of a model and its task; of what is offered it takes its own."""
        taken = {key: value for key, value in (offered or {}).items() if key in self.takes}
        lacking = [key for key in self.takes if key not in taken]
        if lacking and "prototypes" in self.needs:
            raise UserError(f"{self.label} needs a prototype network; not given: {', '.join(lacking)}")
        file, _, name = self.home.partition(":")
        factory = getattr(import_module(f"dprotonet.interpretation.{file}"), name)
        if "prototypes" not in self.needs:  # whose last layer tells what classes there are
            taken["task"] = task
        made: Explainer = factory(model, classes=classes, **self.settings, **taken)
        return made


_EVERY_CHANNEL = "a pass for every channel"
_BLIND = ("eigencam",)  # those that look at the feature map alone
_ABSOLUTE = ("fullgrad",)  # those that take magnitudes


def _cam(method: str, label: str, cost: str, *needs: Need) -> ExplainerEntry:
    """One of pytorch-grad-cam's."""
    return ExplainerEntry(
        "cam:CAM",
        label,
        cost,
        needs=("feature map", *needs),
        settings={"method": method},
        takes=("stem",),
        package="pytorch_grad_cam",
        slow=cost == _EVERY_CHANNEL,
        asks=method not in _BLIND,
        signed=method not in (*_BLIND, *_ABSOLUTE),
    )


_OF_PROTOTYPES = ("regions", "footprint", "similarity", "prototypes", "weight")

EXPLAINERS: dict[str, ExplainerEntry] = {
    "mdm": ExplainerEntry(
        "mdm:MDM",
        "MDM decoder",
        "24 passes",
        "probability",
        needs=("gradient",),
        takes=("preset",),
        optimises=("keep black",),
    ),
    "gradcam": _cam("gradcam", "Grad-CAM", "1 pass", "gradient"),
    "gradcam++": _cam("gradcam++", "Grad-CAM++", "1 pass", "gradient"),
    "layercam": _cam("layercam", "Layer-CAM", "1 pass", "gradient"),
    "hirescam": _cam("hirescam", "HiRes-CAM", "1 pass", "gradient"),
    "xgradcam": _cam("xgradcam", "XGrad-CAM", "1 pass", "gradient"),
    "eigencam": _cam("eigencam", "Eigen-CAM", "1 pass"),
    "scorecam": _cam("scorecam", "Score-CAM", _EVERY_CHANNEL),
    "ablationcam": _cam("ablationcam", "Ablation-CAM", _EVERY_CHANNEL),
    "fullgrad": _cam("fullgrad", "Full-Grad", "1 pass", "gradient"),
    "ig": ExplainerEntry(
        "gradients:IntegratedGradients", "Integrated Gradients", "50 passes", needs=("gradient",)
    ),
    "smoothgrad": ExplainerEntry(
        "gradients:SmoothGrad", "SmoothGrad (Input × Gradient)", "25 passes", needs=("gradient",)
    ),
    "occlusion": ExplainerEntry(
        "hidden_parts:Occlusion", "Occlusion", "170 passes", slow=True, optimises=("hide black",)
    ),
    "lime": ExplainerEntry("hidden_parts:Lime", "LIME", "300 passes", slow=True, optimises=("hide black",)),
    "kernelshap": ExplainerEntry(
        "hidden_parts:KernelShap", "Kernel-SHAP", "300 passes", slow=True, optimises=("hide black",)
    ),
    "extremal": ExplainerEntry(
        "extremal:Extremal",
        "Extremal perturbation",
        "602 passes",
        needs=("gradient",),
        slow=True,
        optimises=("keep black",),
    ),
    "rise": ExplainerEntry(
        "rise:Rise", "RISE", "1000 passes", "probability", slow=True, optimises=("keep black",)
    ),
    "rollout": ExplainerEntry(
        "attention:Rollout", "Attention rollout", "1 pass", needs=("gradient", "attention"), asks=False
    ),
    "chefer": ExplainerEntry(
        "attention:Chefer", "Chefer's relevance", "1 pass", needs=("gradient", "attention")
    ),
    "legrad": ExplainerEntry(
        "attention:LeGrad", "LeGrad", "a pass for every block", needs=("gradient", "attention")
    ),
    "attnlrp": ExplainerEntry("attnlrp:AttnLRP", "AttnLRP", "1 pass", needs=("gradient", "attention")),
    "similarity": ExplainerEntry(
        "similarity:SimilarityMaps",
        "Prototype similarity",
        "1 pass",
        needs=("prototypes",),
        takes=_OF_PROTOTYPES,
    ),
}


def explainer_entry(name: str) -> ExplainerEntry:
    """The line of that name; a UserError that names the known ones."""
    if name not in EXPLAINERS:
        raise UserError(f"unknown method '{name}'; known: {', '.join(EXPLAINERS)}")
    return EXPLAINERS[name]


def described(names: Sequence[str] = ()) -> str:
    """The table in a sentence, for help texts; all of it unless names are given."""
    return "; ".join(f"{name} ({_told(explainer_entry(name))})" for name in names or EXPLAINERS)


def _told(entry: ExplainerEntry) -> str:
    only = {"prototypes": ", prototype networks only", "attention": ", transformers only"}
    own = "".join(only.get(need, "") for need in entry.needs)
    alike = "" if entry.asks else ", the same for every class"
    blind = ", blind to signs" if entry.asks and not entry.signed else ""
    return f"{entry.label}, {entry.cost}{own}{alike}{blind}"
