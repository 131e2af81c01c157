"""Adam with one step size for a whole mask instead of one for each of its numbers."""

import torch
from torch import Tensor


class SharedDescent:
    """Of masks (N, s, s) or (N, d, h, w), each of whose places moves by its own `speed`.

    Adam moves every number alike, so places without influence wander by the sign of rounding errors; here
    they stay where the first guess put them, and a batch gives what its images give one by one.
    """

    def __init__(
        self, parameters: list[Tensor], *, rate: float, speeds: list[Tensor], decay: float = 0.9
    ) -> None:
        self.parameters, self.rate, self.decay, self._number = parameters, rate, decay, 0
        self.speeds = speeds
        self._mean = [torch.zeros_like(item) for item in parameters]
        self._square = [item.new_zeros(len(item), *(1,) * (item.ndim - 1)) for item in parameters]

    @torch.no_grad()
    def step(self) -> None:
        self._number += 1
        unbias = 1 - self.decay**self._number
        for item, speed, mean, square in zip(
            self.parameters, self.speeds, self._mean, self._square, strict=True
        ):
            assert item.grad is not None
            mean.lerp_(item.grad, 1 - self.decay)
            places = tuple(range(1, item.ndim))
            square.lerp_(item.grad.square().mean(dim=places, keepdim=True), 1 - self.decay)
            length = (square / unbias).sqrt().clamp_min(torch.finfo(item.dtype).tiny)
            item.sub_(self.rate * speed * (mean / unbias) / length)
            item.grad = None
