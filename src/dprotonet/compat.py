"""One door to torchvision and timm.

torchvision's wheel is built for CUDA. Beside a CPU-only torch its import fails, because the schemas of two
operators that its compiled part should have registered are missing. We never call them; declaring them is
enough. Where they exist (every matching pair of wheels) nothing is done.
"""

import importlib
from functools import cache
from types import ModuleType

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


@cache
def _declare_missing_operators() -> object:
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        try:
            torch._C._dispatch_find_schema_or_throw(f"torchvision::{operator}", "")
        except RuntimeError:
            library.define(operator + _SCHEMA)
    return library  # cached, so that the definitions live as long as the process


def import_guarded(name: str) -> ModuleType:
    """Import torchvision, timm or something that imports them, on any build of torch."""
    try:
        return importlib.import_module(name)
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    _declare_missing_operators()
    # A failed import leaves half-initialised modules behind; they must be imported anew.
    import sys

    for loaded in [m for m in sys.modules if m.split(".")[0] in ("torchvision", "timm")]:
        del sys.modules[loaded]
    return importlib.import_module(name)
