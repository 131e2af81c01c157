"""Where a network begins before its first step: part maps, shaping net, prototypes."""

import torch

from dprotonet.config import TrainingConfig
from dprotonet.encoder.part_maps import WithParts
from dprotonet.encoder.regions import Parts
from dprotonet.inference.presence import ChannelMaximum
from dprotonet.network import BlackBox, Network
from dprotonet.training.discriminant import drawn_vectors, start_as_discriminant
from dprotonet.training.part_discriminant import start_parts_as_discriminants
from dprotonet.training.part_start import start_parts
from dprotonet.training.pooled_discriminant import start_head_as_discriminant
from dprotonet.training.start import starting_vectors, uniform_vectors
from dprotonet.training.views import ViewSource


def start_network(
    network: Network, views: ViewSource, training: TrainingConfig, device: torch.device
) -> None:
    """Start all that does not start at random, as channels do."""
    if isinstance(network, BlackBox):
        if training.shaping_start == "discriminant":
            start_head_as_discriminant(network, views, device=device)
        return
    if isinstance(network.prototypes.assignment, ChannelMaximum):
        return
    seed, shaping, regions = training.seed, network.encoder.shaping, network.encoder.regions
    if isinstance(shaping, WithParts):
        by_energy = training.part_foreground == "energy"
        start_parts(network, shaping.part_maps, views, seed=seed, by_energy=by_energy, device=device)
    discriminant = training.shaping_start == "discriminant"
    if discriminant and not isinstance(regions, Parts):
        start_as_discriminant(network, views, seed=seed, device=device)
    if training.prototype_start == "uniform":
        network.initialise_prototypes(uniform_vectors(network, seed=seed))
        return
    draw = drawn_vectors if discriminant else starting_vectors
    network.initialise_prototypes(draw(network, views, seed=seed, device=device))
    if discriminant and isinstance(regions, Parts):
        start_parts_as_discriminants(network, regions, views, device=device)
