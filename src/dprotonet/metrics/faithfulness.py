"""Does the class probability follow the explanation? AD, AI, AG, deletion and insertion (Section 4.2).

One door to `drop` and `curves`. Everything is a value per image; the metric is the mean. Deletion, insertion
and `keep` rank pixels, so they want the *raw* map: a thresholded one ties most pixels, and tied pixels come
in reading order. The name of a protocol says the space in which pixels are hidden: print it with the numbers.
"""

from dprotonet.metrics.curves import RiseProtocol, Score, area_under, deletion_curves, insertion_curves
from dprotonet.metrics.drop import (
    DropProtocol,
    average_drop,
    average_gain,
    average_increase,
    explained_images,
)
from dprotonet.metrics.ranking import ranks

__all__ = [
    "DropProtocol",
    "RiseProtocol",
    "Score",
    "area_under",
    "average_drop",
    "average_gain",
    "average_increase",
    "deletion_curves",
    "explained_images",
    "insertion_curves",
    "ranks",
]
