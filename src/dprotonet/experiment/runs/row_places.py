"""From when on a row's two places do not look alike: what few rows of known images exceed.

Measured on validation images by `dprotonet reliability` and kept in the run folder as row_places.json with a
digest of the weights it belongs to. Without it nothing is said of a row's places.
"""

import json
import logging
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.files import read_json, write_text
from dprotonet.metrics.classification import wilson_interval
from dprotonet.percent import percent
from dprotonet.training.checkpoint import weights_digest

logger = logging.getLogger(__name__)

FILE = "row_places.json"
SHARE = 0.05  # of rows of rightly answered validation images that are warned of
WIDE = 3  # times the share asked for: where more rows than that may be warned of, images were few


@dataclass(frozen=True)
class PlaceLimit:
    """A row is warned of beyond `limit`; so were `share` of `rows` rows of `images` images."""

    limit: float
    share: float
    rows: int
    images: int
    weights: str  # digest of the network it belongs to

    @property
    def interval(self) -> tuple[float, float]:
        """Which share of the rows of new images may be warned of (95 %).

        Rows of an image are alike, so each image counts as one: wide rather than too narrow.
        """
        return wilson_interval(self.share * self.images, self.images)

    def caution(self, asked: float = SHARE) -> str:
        """What to tell people where images were too few for the share that was asked for; else nothing."""
        low, high = self.interval
        if high <= WIDE * asked:
            return ""
        images = "1 image" if self.images == 1 else f"{self.images} images"
        return (
            f"careful: the limit is from {images} only, so between {percent(low)} and {percent(high)} of the "
            f"rows of images like these may get a warning, where {percent(asked)} were asked for; measure on "
            "more images with --data"
        )

    def write(self, folder: Path) -> None:
        write_text(folder / FILE, json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: Path, network: nn.Module) -> "PlaceLimit | None":
        """What a run folder has for this network; one of other weights counts as none."""
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            found = _checked(cls(**read_json(path)))
        except (ValueError, TypeError) as error:
            raise UserError(
                f"{path} is damaged ({error}); delete it and make it anew with dprotonet reliability"
            ) from None
        if found.weights != weights_digest(network):
            logger.warning("%s belongs to other weights; make it anew with dprotonet reliability", path)
            return None
        return found


def limit_of(ranks: Tensor, *, images: int, network: nn.Module, share: float = SHARE) -> PlaceLimit:
    """The limit from `place_rank` (N,) of rows of images that were not trained on."""
    limit = float(ranks.double().quantile(1 - share, interpolation="higher"))
    told = float((ranks > limit).double().mean())
    return PlaceLimit(limit, told, len(ranks), images, weights_digest(network))


def _checked(found: PlaceLimit) -> PlaceLimit:
    numbers = (found.limit, found.share, found.rows, found.images)
    if not all(type(value) in (int, float) and math.isfinite(value) and value >= 0 for value in numbers):
        raise ValueError("limit, share, rows and images must be numbers, none below 0")
    if not isinstance(found.weights, str):
        raise ValueError("weights must be a digest")
    return found
