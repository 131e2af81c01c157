"""The shaping network f_a: two 1×1 convolutions with a ReLU between (Section 4.3)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout2d


class Shaping(nn.Sequential):
    """(B, in_channels, h, w) to (B, dimension, h, w).

    Without an `ending` region vectors and distances are unbounded; ProtoPNet ends with a sigmoid.
    Unstated: the number of channels between the two convolutions (`dimension` here) and the initial weights
    (He, as in ProtoPNet; `start_linear` replaces some).
    """

    def __init__(
        self,
        in_channels: int,
        dimension: int = 512,
        *,
        ending: Sequence[nn.Module] = (),
        dropout: float = 0.0,
    ) -> None:
        first, second = nn.Conv2d(in_channels, dimension, 1), nn.Conv2d(dimension, dimension, 1)
        super().__init__(first, nn.ReLU(), second, *ending)
        self.dropout = dropout
        for layer in (first, second):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, feature_map: Tensor) -> Tensor:
        """While it trains, both convolutions do without a share `dropout` of their input channels."""
        first, between, second, *ending = self
        hidden = between(first(dropout2d(feature_map, self.dropout, self.training)))
        shaped: Tensor = second(dropout2d(hidden, self.dropout, self.training))
        for layer in ending:
            shaped = layer(shaped)
        return shaped

    @property
    def most_directions(self) -> int:
        """How many directions `start_linear` can take: each needs two channels between the convolutions."""
        return self._convolutions()[0].out_channels // 2

    @property
    def linear_end(self) -> bool:
        """Whether the second convolution has the last word, so that `scale` multiplies what comes out."""
        return len(self) == 3

    @torch.no_grad()
    def start_linear(self, centre: Tensor, directions: Tensor, *, seed: int) -> None:
        """Become the map x ↦ Q · directions · (x - centre), directions (K, in_channels), Q a random isometry.

        v = ReLU(v) - ReLU(-v), so 2K channels carry it; the others keep their weights and begin unheard. An
        `ending` comes after it: a sigmoid is nearly the straight line 1/2 + v/4 where v is small (`scale`).
        """
        first, second = self._convolutions()
        count, width = len(directions), len(second.weight)
        pairs = torch.cat([directions, -directions])
        first.weight[: 2 * count] = pairs[:, :, None, None].to(first.weight)
        _bias(first)[: 2 * count] = -(pairs @ centre).to(first.weight)
        generator = torch.Generator().manual_seed(seed)
        turned = torch.linalg.qr(torch.randn(width, count, generator=generator)).Q.to(second.weight)
        second.weight.zero_()
        second.weight[:, : 2 * count] = torch.cat([turned, -turned], dim=1)[:, :, None, None]
        _bias(second).zero_()

    @torch.no_grad()
    def scale(self, factor: float) -> None:
        """Multiply what comes before any `ending` by `factor`, both convolutions taking half of it."""
        first, second = self._convolutions()
        for parameter in (first.weight, _bias(first), second.weight):
            parameter.mul_(factor**0.5)
        _bias(second).mul_(factor)

    def _convolutions(self) -> tuple[nn.Conv2d, nn.Conv2d]:
        first, second = self[0], self[2]
        assert isinstance(first, nn.Conv2d)
        assert isinstance(second, nn.Conv2d)
        return first, second


def _bias(layer: nn.Conv2d) -> Tensor:
    assert layer.bias is not None
    return layer.bias


class Beside(nn.Module):
    """Features and, as further channels, occurrence logits of the same map (XProtoNet): (B, D + P, h, w).

    Unstated: how the occurrence maps M are initialised. Ours start near zero, at `rare`, wherever the
    backbone has no activation. From one half, the loss on |M| would have to reduce them, and its gradient is
    largest where activations are strong: maps would fall on the object and stay high in the background, where
    features are short and the cosine permits it (docs/rivals.md).
    """

    rare = 0.01  # as detectors start their rare classes (Lin et al., 2017)

    def __init__(self, features: Shaping, occurrence: Shaping) -> None:
        super().__init__()
        self.features = features
        self.occurrence = occurrence
        nn.init.constant_(_bias(occurrence._convolutions()[1]), math.log(self.rare / (1 - self.rare)))

    def forward(self, feature_map: Tensor) -> Tensor:
        return torch.cat([self.features(feature_map), self.occurrence(feature_map)], dim=1)


class Channels(nn.Sequential):
    """PIP-Net's prototypes as channels: (B, in_channels, h, w) to shares (B, count, h, w), 1 at each place.

    Deviation: PIP-Net applies the softmax to the backbone's last channels and fine-tunes them. With a frozen
    backbone that is impossible, so in both modes there is a 1×1 convolution in between, an option of its
    code.
    """

    def __init__(self, in_channels: int, count: int) -> None:
        convolution = nn.Conv2d(in_channels, count, 1)
        nn.init.xavier_uniform_(convolution.weight)
        super().__init__(convolution, nn.Softmax(dim=1))
