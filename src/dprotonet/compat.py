"""What differs from machine to machine: one door to torchvision and timm, and how memory is kept.

torchvision's wheel is built for CUDA. Beside a CPU-only torch its import fails, because the schemas of two
operators that its compiled part should have registered are missing. We never call them; declaring them is
enough. Where they exist (every matching pair of wheels) nothing is done.
"""

import ctypes
import importlib
import sys
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
    for loaded in [m for m in sys.modules if m.split(".")[0] in ("torchvision", "timm")]:
        del sys.modules[loaded]
    return importlib.import_module(name)


def keep_freed_memory() -> None:
    """Let glibc keep large freed blocks instead of handing them back to the kernel after every layer.

    On a CPU each step allocates and frees the same tens of megabytes; faulting and zeroing them anew took a
    third of the time of a forward pass. A process-wide setting, so the commands make it, never the library.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # musl has none
        trim_threshold, mmap_threshold = -1, -3
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(mmap_threshold, 2**30)
