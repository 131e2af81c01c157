"""What explainers are told of a network, by the one table of them, and nodes of prototype networks.

The table (`interpretation.explainers`) knows no DProtoNet: its backbone, which need not run again and again,
and how a prototype network explains itself are prepared here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from dprotonet.encoder.regions import Occurrence, Parts, Regions
from dprotonet.errors import UserError
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.inference.contrast import part_gaps
from dprotonet.inference.presence import ChannelMaximum
from dprotonet.inference.region_assignment import PartRegion, any_region
from dprotonet.interpretation.contrast_maps import ContrastMaps
from dprotonet.interpretation.explainer import Explainer
from dprotonet.interpretation.explainers import EXPLAINERS, ExplainerEntry, explainer_entry
from dprotonet.interpretation.mdm import Preset
from dprotonet.interpretation.nodes import ClassNode, Forward, PrototypeNode, RegionNode, Similarity
from dprotonet.interpretation.occurrence import Differing, OccurrenceMaps
from dprotonet.interpretation.outputs import Outputs
from dprotonet.interpretation.prototype_maps import PrototypeMaps
from dprotonet.interpretation.similarity import SimilarityMaps
from dprotonet.network import BlackBox, DProtoNet

CONTRAST = "contrast"  # what the page calls `contrast_explainer`


def explainer(name: str, classifier: Classifier, *, preset: str | Preset = "fast") -> Explainer:
    """The explainer of that name for that network; `preset` is for those that have one."""
    entry, network = explainer_entry(name), classifier.module
    if name in PREPARED:
        return PREPARED[name](prototyped(classifier, name), classifier.classes)
    stem = network.encoder.backbone if isinstance(network, DProtoNet) else None
    return entry.make(
        network, {"preset": preset, "stem": stem}, classes=classifier.classes, task=classifier.task
    )


def class_node(classifier: Classifier, labels: Sequence[int] | Tensor, by: Explainer) -> ClassNode:
    """A class per image, by number, as the explainer `by` watches it; of a regression 0 is up and 1 down."""
    return ClassNode(Outputs(classifier.module, classifier.task), labels, probability=by.probability)


def available_explainers(model: TrainedModel) -> dict[str, ExplainerEntry]:
    """The lines of the table that work here with this network."""
    lacking = {"prototypes"} if isinstance(model.network, BlackBox) else set()
    if not attends(model.network):
        lacking.add("attention")
    return {
        name: entry
        for name, entry in EXPLAINERS.items()
        if entry.installed and not lacking & set(entry.needs)
    }


def attends(network: nn.Module) -> bool:
    """Whether some layer is called attention; that it is of the right kind shows only when it runs."""
    return any("attention" in type(module).__name__.lower() for module in network.modules())


def prototype_node(network: DProtoNet, numbers: Sequence[int] | Tensor) -> PrototypeNode:
    """The score of one prototype per image, by number."""
    assignment = network.prototypes.assignment
    if assignment is not any_region and not isinstance(assignment, ChannelMaximum):
        raise UserError("prototypes that pool for themselves are no such nodes; explain a class instead")
    return PrototypeNode(
        network.encoder, _similarity_of(network), network.prototypes.vectors, numbers, model=network
    )


def row_node(
    network: DProtoNet, region: Tensor, *, target: Tensor | None = None, names: Sequence[str] = ()
) -> RegionNode:
    """Rows of an explanation: the region (N,) in which the prototype of each was found, one per image.

    Parts know where they are: they offer their maps to a decoder that asks (`own_guess` of its preset).
    """
    maps = _part_maps(network) if isinstance(network.encoder.regions, Parts) else None
    return RegionNode(network.encoder, region, target=target, maps=maps, names=names)


def _part_maps(network: DProtoNet) -> Forward:
    regions = cast(Parts, network.encoder.regions)
    return lambda images: regions.maps(network.encoder.feature_map(images))


@torch.no_grad()
def strongest_prototype(network: DProtoNet, images: Tensor, labels: Tensor) -> RegionNode:
    """For each image, the region where its strongest prototype was found, Eqs. (12) and (14); labels (B,).

    Unstated: of the many prototypes of a decision, whose map the paper measures. Ours is that of the asked
    class which contributes most to it.
    """
    evidence = network.evidence(images)
    own = network.head.owned(network.prototype_class)[labels]
    if not own.any(dim=1).all():
        raise UserError(f"class {int(labels[~own.any(dim=1)][0])} has no prototype left; explain the class")
    number = network.contributions(evidence, labels).masked_fill(~own, -torch.inf).argmax(dim=1)
    region = evidence.region.gather(1, number.unsqueeze(1)).squeeze(1)
    names = [f"prototype {found} in the image" for found in number.tolist()]
    return row_node(network, region, names=names)


def prototyped(classifier: Classifier, method: str) -> DProtoNet:
    """The network of a classifier that has prototypes; a UserError for others."""
    if not isinstance(classifier.module, DProtoNet):
        raise UserError(f"method '{method}' needs a prototype network, and {classifier.name} is none")
    return classifier.module


def own_maps(network: DProtoNet, classes: Sequence[str] = ()) -> PrototypeMaps:
    """How a prototype network explains itself: similarity maps, or where its prototypes occur."""
    if isinstance(network.encoder.regions, (Occurrence, Parts)):
        return _occurrence(network, network.encoder.regions, classes)
    return SimilarityMaps(
        network,
        regions=network.encoder,
        footprint=cast(Regions, network.encoder.regions).footprint(),
        similarity=_similarity_of(network),
        prototypes=network.prototypes.vectors,
        weight=network.head.weight,
        classes=classes,
    )


PREPARED: Mapping[str, Callable[[DProtoNet, Sequence[str]], Explainer]] = {"similarity": own_maps}
"""Explainers of the table that are made of the parts of a prototype network."""


def _similarity_of(network: DProtoNet) -> Similarity:
    measure = network.prototypes.similarity

    def similarity(regions: Tensor, vectors: Tensor) -> Tensor:
        gap = measure.space(regions).unsqueeze(-2) - measure.ideal(vectors)
        return measure.scores(gap.square().sum(dim=-1))

    return similarity


def _occurrence(network: DProtoNet, regions: Occurrence | Parts, classes: Sequence[str]) -> OccurrenceMaps:
    """Maps of regions that follow the image: of each prototype that of its region."""

    def occurring(images: Tensor) -> tuple[Tensor, Tensor]:
        feature_map = network.encoder.feature_map(images)
        evidence = network.evidence_of(regions(feature_map))
        return regions.maps(feature_map)[:, evidence.region[0]], evidence.scores

    return OccurrenceMaps(
        network,
        occurring=occurring,
        weight=network.head.weight,
        differing=_differing(network),
        classes=classes,
    )


def _differing(network: DProtoNet) -> Differing | None:
    """Where the parts are in which the prototypes of two classes differ, (B, h, w); None without parts.

    A part has its region's places, and counts by the square of its gap: what differs most is to be seen.
    """
    regions, assignment = network.encoder.regions, network.prototypes.assignment
    if not isinstance(regions, Parts) or not isinstance(assignment, PartRegion):
        return None

    def differing(images: Tensor, labels: Tensor, versus: Tensor) -> Tensor:
        gaps = part_gaps(
            network.prototypes.vectors,
            part=assignment.part,
            prototype_class=network.prototype_class,
            label=labels,
            versus=versus,
        )
        share = regions.maps(network.encoder.feature_map(images))
        peak = share.amax(dim=(-2, -1), keepdim=True).clamp_min(torch.finfo(share.dtype).tiny)
        return torch.einsum("bk,bkhw->bhw", gaps.square(), (share / peak).pow(regions.sharpness).float())

    return differing


def contrast_explainer(classifier: Classifier, *, preset: str | Preset = "fast") -> Explainer:
    """Who shows where two classes are told apart: `ContrastMaps` if regions are parts, else the decoder."""
    network = classifier.module
    if not (isinstance(network, DProtoNet) and isinstance(network.encoder.regions, Parts)):
        return explainer("mdm", classifier, preset=preset)
    added = network.added_by_places if network.linear_in_parts else None
    return ContrastMaps(network, added=added, classes=classifier.classes)
