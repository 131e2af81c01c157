"""How a data set in files is read, whichever it is: the same few choices for every reader."""

from dataclasses import dataclass

from dprotonet.data.image_cache import ImageCache
from dprotonet.errors import UserError
from dprotonet.progress import Progress


@dataclass(frozen=True)
class Reading:
    """How a data set is read, whichever it is."""

    size: int = 224
    val_fraction: float = 0.1
    seed: int = 0
    allow_leaks: bool = False
    cache: ImageCache | None = None
    on_progress: Progress | None = None

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 < self.val_fraction < 1:
            raise UserError(
                f"size {self.size} must be at least 1, val_fraction {self.val_fraction} between 0 and 1"
            )
