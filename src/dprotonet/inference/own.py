"""Which prototypes are of a label that the image has: of its one class, or of each of its labels."""

from torch import Tensor


def own_prototypes(labels: Tensor, prototype_class: Tensor) -> Tensor:
    """(B, P) bool; labels are numbers of classes (B,), or rows of 0 and 1 (B, L); prototype_class (P,)."""
    if labels.ndim == 1:
        return labels.unsqueeze(1) == prototype_class
    return labels[:, prototype_class] > 0


def allowed_prototypes(labels: Tensor, allowed: Tensor) -> Tensor:
    """Which prototypes images may be the source of, (B, P) bool; `allowed` (C, P) says so of their labels."""
    return allowed[labels] if labels.ndim == 1 else (labels > 0).float() @ allowed.float() > 0


def members(labels: Tensor, label: int) -> Tensor:
    """Which images have a label, (N,) bool; labels (N,) numbers, or (N, L) rows."""
    return labels == label if labels.ndim == 1 else labels[:, label] > 0
