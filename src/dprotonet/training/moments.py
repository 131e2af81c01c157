"""Sums over training vectors from which closed-form discriminants are made: by class, or by label.

A class has the images that are of it. A label has no such set: the images that have it differ in their other
labels too. So vectors are taken as a sum, x = m + Σ_l y_l d_l + what is left, fitted by least squares over
all labels together; d_l is what label l adds, all others being equal, and what is left is the spread within.
"""

import torch
from torch import Tensor

_RIDGE = 1e-6  # of the images: labels that always come together have no solution of their own


class ClassMoments:
    """Running sums of vectors by class, in float64: all that the discriminant needs of the data."""

    def __init__(self, classes: int, dimension: int) -> None:
        self.count = torch.zeros(classes, dtype=torch.float64)
        self.total = torch.zeros(classes, dimension, dtype=torch.float64)
        self.square = torch.zeros(dimension, dimension, dtype=torch.float64)

    def update(self, vectors: Tensor, labels: Tensor) -> None:
        """Look at a batch: vectors (B, D), labels (B,)."""
        vectors, labels = vectors.cpu().double(), labels.cpu()
        self.count += torch.bincount(labels, minlength=len(self.count))
        self.total.index_add_(0, labels, vectors)
        self.square += vectors.T @ vectors

    def __add__(self, other: "ClassMoments") -> "ClassMoments":
        """Of the vectors of both."""
        both = ClassMoments(*self.total.shape)
        for name in vars(both):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        return both

    @property
    def most(self) -> int:
        """How many directions tell the classes apart at most."""
        return int((self.count > 0).sum()) - 1

    def own(self) -> Tensor:
        """What images of each class look like, (C, D)."""
        return self.means()

    def means(self) -> Tensor:
        """Of every class (C, D)."""
        return self.total / self.count.clamp_min(1).unsqueeze(1)

    def within(self) -> Tensor:
        """The covariance about the own class's mean (D, D)."""
        means = self.means()
        return (self.square - (means * self.count.unsqueeze(1)).T @ means) / self.count.sum()


class LabelMoments:
    """Running sums of vectors (B, D) and their labels (B, L), in float64.

    It has what `ClassMoments` has: two kinds of images for each label, with it and without it, that differ in
    nothing else.
    """

    def __init__(self, labels: int, dimension: int) -> None:
        self.label_square = torch.zeros(labels + 1, labels + 1, dtype=torch.float64)  # with a column of ones
        self.cross = torch.zeros(labels + 1, dimension, dtype=torch.float64)
        self.square = torch.zeros(dimension, dimension, dtype=torch.float64)

    def update(self, vectors: Tensor, labels: Tensor) -> None:
        """Look at a batch: vectors (B, D), labels (B, L) of 0 and 1."""
        vectors, labels = vectors.cpu().double(), labels.cpu().double()
        rows = torch.cat([torch.ones_like(labels[:, :1]), labels], dim=1)
        self.label_square += rows.T @ rows
        self.cross += rows.T @ vectors
        self.square += vectors.T @ vectors

    @property
    def count(self) -> Tensor:
        """Of each label the images without and with it, (2L,)."""
        having = self.label_square[0, 1:]
        return torch.stack([self.label_square[0, 0] - having, having], dim=1).flatten()

    @property
    def most(self) -> int:
        """How many directions tell the labels apart at most."""
        return len(self.label_square) - 1

    def coefficients(self) -> Tensor:
        """m and d_l by least squares, (1 + L, D)."""
        ridge = _RIDGE * self.label_square[0, 0] * torch.eye(len(self.cross), dtype=torch.float64)
        return torch.linalg.solve(self.label_square + ridge, self.cross)

    def middle(self) -> Tensor:
        """The mean of all vectors (D,)."""
        return self.cross[0] / self.label_square[0, 0]

    def means(self) -> Tensor:
        """Of each label without and with it, (2L, D), about the mean of all."""
        half = self.coefficients()[1:] / 2
        return self.middle() + torch.stack([-half, half], dim=1).flatten(0, 1)

    def own(self) -> Tensor:
        """What images of each label look like, (L, D): the mean of all moved by what the label adds."""
        return self.middle() + self.coefficients()[1:]

    def expected(self, labels: Tensor) -> Tensor:
        """What images with these labels (N, L) look like, (N, D)."""
        rows = torch.cat([torch.ones_like(labels[:, :1]), labels], dim=1).double()
        return rows @ self.coefficients()

    def within(self) -> Tensor:
        """The covariance of what labels do not explain (D, D)."""
        found = self.coefficients()
        shared = found.T @ self.cross
        return (self.square - shared - shared.T + found.T @ self.label_square @ found) / self.label_square[
            0, 0
        ]


Moments = ClassMoments | LabelMoments


def moments_of(labels: Tensor, *, classes: int, dimension: int) -> Moments:
    """Sums for labels like these: numbers of classes (B,), or rows (B, L)."""
    return ClassMoments(classes, dimension) if labels.ndim == 1 else LabelMoments(classes, dimension)
