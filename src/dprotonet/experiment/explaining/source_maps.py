"""Where each prototype lies in its own source image: made once a run, kept in the run folder.

    explanations/PRESET-DIGEST/prototype-0012.npy           float16 (H, W) in [0, 1]
    explanations/PRESET-DIGEST/prototype-0012-above.npy     bool (H, W), of a preset that has a threshold

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
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.experiment.explaining.explainers import row_node
from dprotonet.experiment.explaining.pictures import source_image
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.figures import overlay
from dprotonet.figures.outline import boxed
from dprotonet.files import whole
from dprotonet.interpretation.base import Explanation, Passes
from dprotonet.interpretation.masking_task import Step
from dprotonet.interpretation.mdm import MDM, Preset
from dprotonet.training.checkpoint import tensor_digest
from dprotonet.version import __version__

logger = logging.getLogger(__name__)

NONE = Passes(0, 0)

ABOVE = "-above"

Observer = Callable[[Sequence[int]], Callable[[Step], None]]  # of prototypes, to who watches their maps grow


class _Kept(NamedTuple):
    """What is kept of a prototype's explanation: float16 (H, W), and bool (H, W) or None."""

    heatmap: Tensor
    above: Tensor | None

    @classmethod
    def of(cls, made: Explanation) -> "_Kept":
        return cls(made.heatmap.cpu().half(), None if made.above is None else made.above.cpu())


@dataclass(frozen=True)
class SourceMaps:
    """The heatmaps of a model's prototypes by one decoder."""

    model: TrainedModel
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
        return {number: self._explanation(number, maps) for number, maps in found.items() if maps is not None}

    def made(self, prototypes: Sequence[int], *, observer: Observer) -> dict[int, Explanation]:
        """Where these prototypes lie, found by the decoder and kept for the next time."""
        found: dict[int, Explanation] = {}
        for start in range(0, len(prototypes), self.block):
            block = prototypes[start : start + self.block]
            made = self._decoded(block, observer(block))
            self._keep({number: _Kept.of(item) for number, item in made.items()})
            found |= {number: self._as_kept(number, item) for number, item in made.items()}
        return found

    def image(self, prototype: int) -> Tensor:
        """The source image (3, H, W) uint8."""
        return source_image(self.model, prototype)

    # ── making ──

    def _decoded(self, prototypes: Sequence[int], watch: Callable[[Step], None]) -> dict[int, Explanation]:
        """Eqs. (13) and (15): the region of the source that is nearest to the prototype, kept at p itself."""
        inputs = self.model.inputs([self.image(number) for number in prototypes])
        wanted = torch.tensor(prototypes, device=inputs.device)
        network = self.model.prototyped
        with torch.no_grad():
            nearest = network.prototypes.nearest(network.encoder(inputs)).region
        node = row_node(
            network,
            nearest.gather(1, wanted.unsqueeze(1)).squeeze(1),
            target=network.prototypes.vectors.detach()[wanted],
            names=[_name(number) for number in prototypes],
        )
        found = self.decoder.explain(inputs, node, on_step=watch)
        return dict(zip(prototypes, found, strict=True))

    def _explanation(self, prototype: int, maps: "_Kept", passes: Passes = NONE) -> Explanation:
        facts = {"preset": self.decoder.name, "stored": passes == NONE}
        image, heatmap = self.model.inputs([self.image(prototype)])[0], maps.heatmap.float()
        return Explanation(heatmap, heatmap, {}, (), passes, _name(prototype), image, facts, maps.above)

    def _as_kept(self, prototype: int, made: Explanation) -> Explanation:
        """As it will be read the next time: the same picture today and tomorrow."""
        return self._explanation(prototype, _Kept.of(made), made.passes)

    # ── keeping ──

    def _path(self, prototype: int, kind: str = "") -> Path:
        return self.folder / f"prototype-{prototype:04d}{kind}.npy"

    def _read(self, prototype: int) -> "_Kept | None":
        heatmap = self._array(self._path(prototype), np.float16)
        if heatmap is None or self.decoder.preset.above(heatmap) is None:
            return None if heatmap is None else _Kept(heatmap, None)
        above = self._array(self._path(prototype, ABOVE), np.bool_)
        return None if above is None else _Kept(heatmap, above)

    def _array(self, path: Path, dtype: type) -> Tensor | None:
        """What a file holds; None if it is not there, or damaged."""
        if not path.is_file():
            return None
        try:
            return self._checked(np.load(path, allow_pickle=False), dtype)
        except (OSError, ValueError, TypeError, EOFError) as error:
            logger.warning("%s is damaged (%s) and is made anew", path, error)
            return None

    def _checked(self, values: object, dtype: type) -> Tensor:
        side = self.model.config.data.image_size
        if not isinstance(values, np.ndarray) or values.dtype != dtype or values.shape != (side, side):
            raise ValueError(f"not a {np.dtype(dtype)} array of {side} × {side}")
        if not ((values >= 0) & (values <= 1)).all():  # false for NaN too
            raise ValueError("not within [0, 1]")
        return torch.from_numpy(values)

    def _keep(self, found: Mapping[int, "_Kept"]) -> None:
        try:
            for number, maps in found.items():
                for kind, values in (("", maps.heatmap), (ABOVE, maps.above)):
                    if values is not None:
                        with whole(self._path(number, kind)) as temporary, temporary.open("wb") as file:
                            np.save(file, values.numpy())
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


def mapped_source(model: TrainedModel, prototype: int, *, preset: str | Preset) -> Tensor | None:
    """The source image (3, H, W) uint8 under the prototype's heatmap, its hottest fifth boxed.

    None where no heatmap by this decoder is kept: nothing is made here.
    """
    maps = SourceMaps(model, MDM(preset=preset))
    found = maps.stored([prototype]).get(prototype)
    if found is None:
        return None
    return boxed(overlay(maps.image(prototype), found.heatmap), found.box())


def _name(prototype: int) -> str:
    return f"prototype {prototype} in its source"
