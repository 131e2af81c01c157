"""One pass over a batch of images: what the network says of them, and how strange they are to it."""

from typing import NamedTuple

from torch import Tensor

from dprotonet.experiment.runs.familiarity import Familiarity
from dprotonet.experiment.runs.known_features import seen_by
from dprotonet.network import BlackBox, Evidence, Network


class Look(NamedTuple):
    """Logits (B, C), what parts are looked for in (B, D, h, w), and what else is known of the images.

    `evidence` is None of a black box, `distance` (B,) where nobody measured what is familiar; 1 is the limit.
    """

    logits: Tensor
    feature_map: Tensor
    evidence: Evidence | None
    distance: Tensor | None


def look(network: Network, inputs: Tensor, known: Familiarity | None) -> Look:
    """At images (B, C, H, W) as the network wants them."""
    encoder = network.encoder
    features, levels = seen_by(encoder.backbone, inputs, None if known is None else known.features)
    feature_map = encoder.shaping(features)
    regions = encoder.regions(feature_map)
    if isinstance(network, BlackBox):
        far = None if known is None else known.distance(None, levels)
        return Look(network.logits_of(regions), feature_map, None, far)
    evidence = network.evidence_of(regions)
    far = None if known is None else known.distance(evidence.distances, levels)
    return Look(evidence.logits, feature_map, evidence, far)
