"""Splits made of other splits: two after one another, or some images of one."""

from collections.abc import Sequence

from dprotonet.data.base import ImageData, Sample
from dprotonet.data.digest import digest_of


class Concatenation:
    """The images of several splits of one data set, one split after the other."""

    def __init__(self, *splits: ImageData) -> None:
        self.splits = splits
        self.classes: Sequence[str] = splits[0].classes
        self.labels: Sequence[int] = tuple(label for split in splits for label in split.labels)

    @property
    def fingerprint(self) -> str:
        return digest_of("pool", *(split.fingerprint for split in self.splits))

    def name(self, index: int) -> str:
        split, place = self._found(index)
        return split.name(place)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        split, place = self._found(index)
        return split[place]

    def _found(self, index: int) -> tuple[ImageData, int]:
        place = range(len(self))[index]  # negative ones from the end; IndexError beyond it
        for split in self.splits:
            if place < len(split):
                return split, place
            place -= len(split)
        raise AssertionError("labels and splits disagree")


class Subset:
    """Some images of a split, `whole`, in the order of `indices`."""

    def __init__(self, whole: ImageData, indices: Sequence[int]) -> None:
        self.whole, self.indices = whole, tuple(indices)
        self.classes: Sequence[str] = whole.classes
        self.labels: Sequence[int] = tuple(whole.labels[index] for index in self.indices)

    @property
    def fingerprint(self) -> str:
        return digest_of("part", self.whole.fingerprint, *map(str, self.indices))

    def name(self, index: int) -> str:
        return self.whole.name(self.indices[index])

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Sample:
        return self.whole[self.indices[index]]
