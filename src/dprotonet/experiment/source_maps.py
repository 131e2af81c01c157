"""Where each prototype lies in its own source image: made once a run, kept in the run folder.

    explanations/PRESET-DIGEST/prototype-0012.npy     float16 (H, W) in [0, 1]

The digest is of the preset with all its numbers and of the network, so that a map is never shown with a
network or a setting that it was not made with. A file that is damaged is made anew; a folder that cannot be
written to costs the time of making them again.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dprotonet import __version__
from dprotonet.data.image import read_image
from dprotonet.errors import UserError
from dprotonet.experiment.model import Model
from dprotonet.files import whole
from dprotonet.interpretation.base import Explanation, Passes
from dprotonet.interpretation.mdm import MDM
from dprotonet.interpretation.nodes import RegionNode
from dprotonet.interpretation.step import Step
from dprotonet.training.checkpoint import tensor_digest

logger = logging.getLogger(__name__)

NONE = Passes(0, 0)

Observer = Callable[[int], Callable[[Step], None]]  # of so many maps, to who watches their steps


@dataclass(frozen=True)
class SourceMaps:
    """The heatmaps of a model's prototypes by one decoder."""

    model: Model
    decoder: MDM
    block: int = 32  # maps made at a time

    @cached_property
    def folder(self) -> Path:
        if self.model.folder is None:
            raise UserError(
                "this model was not loaded from a run folder, so its source images are not at hand"
            )
        preset, *_ = self.decoder.name.split(",")  # changed values are in the digest
        return self.model.folder / "explanations" / f"{preset}-{self._digest()}"

    def stored(self, prototypes: Sequence[int]) -> dict[int, Explanation]:
        """Where those prototypes lie whose heatmaps are kept already; `raw` is the heatmap once more."""
        found = {number: self._read(number) for number in prototypes}
        return {
            number: self._explanation(number, heatmap)
            for number, heatmap in found.items()
            if heatmap is not None
        }

    def made(self, prototypes: Sequence[int], *, observer: Observer) -> dict[int, Explanation]:
        """Where these prototypes lie, found by the decoder and kept for the next time."""
        found: dict[int, Explanation] = {}
        for start in range(0, len(prototypes), self.block):
            block = prototypes[start : start + self.block]
            made = self._decoded(block, observer(len(block)))
            self._keep({number: item.heatmap for number, item in made.items()})
            found |= {number: self._as_kept(number, item) for number, item in made.items()}
        return found

    def image(self, prototype: int) -> Tensor:
        """The source image (3, H, W) uint8."""
        assert self.model.folder is not None
        path = self.model.folder / self.model.prototypes[prototype].image
        return read_image(path, size=self.model.config.data.image_size)

    # ── making ──

    def _decoded(self, prototypes: Sequence[int], watch: Callable[[Step], None]) -> dict[int, Explanation]:
        """Eqs. (13) and (15): the region of the source that is nearest to the prototype, kept at p itself."""
        inputs = self.model.inputs([self.image(number) for number in prototypes])
        wanted = torch.tensor(prototypes, device=inputs.device)
        network = self.model.prototyped
        with torch.no_grad():
            nearest = network.prototypes.nearest(network.encoder(inputs)).region
        node = RegionNode(
            network.encoder,
            nearest.gather(1, wanted.unsqueeze(1)).squeeze(1),
            target=network.prototypes.vectors.detach()[wanted],
            names=[_name(number) for number in prototypes],
        )
        found = self.decoder.explain(inputs, node, on_step=watch)
        return dict(zip(prototypes, found, strict=True))

    def _explanation(self, prototype: int, heatmap: Tensor, passes: Passes = NONE) -> Explanation:
        facts = {"preset": self.decoder.name, "stored": passes == NONE}
        image = self.model.inputs([self.image(prototype)])[0]
        return Explanation(heatmap, heatmap, {}, (), passes, _name(prototype), image, facts)

    def _as_kept(self, prototype: int, made: Explanation) -> Explanation:
        """As it will be read the next time: the same picture today and tomorrow."""
        return self._explanation(prototype, made.heatmap.cpu().half().float(), made.passes)

    # ── keeping ──

    def _path(self, prototype: int) -> Path:
        return self.folder / f"prototype-{prototype:04d}.npy"

    def _read(self, prototype: int) -> Tensor | None:
        path = self._path(prototype)
        if not path.is_file():
            return None
        try:
            return self._checked(np.load(path, allow_pickle=False))
        except (OSError, ValueError, TypeError, EOFError) as error:
            logger.warning("%s is damaged (%s) and is made anew", path, error)
            return None

    def _checked(self, values: object) -> Tensor:
        side = self.model.config.data.image_size
        if not isinstance(values, np.ndarray) or values.dtype != np.float16 or values.shape != (side, side):
            raise ValueError(f"not a float16 array of {side} × {side}")
        if not ((values >= 0) & (values <= 1)).all():  # false for NaN too
            raise ValueError("not within [0, 1]")
        return torch.from_numpy(values).float()

    def _keep(self, heatmaps: Mapping[int, Tensor]) -> None:
        try:
            for number, heatmap in heatmaps.items():
                with whole(self._path(number)) as temporary, temporary.open("wb") as file:
                    np.save(file, heatmap.cpu().half().numpy())
        except OSError as error:
            logger.warning(
                "%s cannot be written (%s): heatmaps of prototypes will be made again the next time",
                self.folder,
                error.strerror or error,
            )

    def _digest(self) -> str:
        settings = {
            "version": __version__,
            "strategy": type(self.decoder.preset).__name__,
            "settings": asdict(self.decoder.preset),  # type: ignore[call-overload]
            "sources": [record.image for record in self.model.prototypes],
        }
        return tensor_digest(self.model.network.state_dict(), beginning=json.dumps(settings), size=8)


def _name(prototype: int) -> str:
    return f"prototype {prototype} in its source"
