"""What differs from machine to machine: builds of torchvision, and how memory is kept.

torchvision's wheel is built for CUDA. Beside a CPU-only torch its import fails, and timm's with it, because
the schemas of two operators that its compiled part should have registered are missing. We never call them;
declaring them is enough. `import dprotonet` watches for that import and then declares what is missing, so
that anyone can import torchvision and timm afterwards. Where the operators exist, as in every matching pair
of wheels, nothing is declared.

Before `import dprotonet` nothing of ours has run: on such a machine `import timm` fails there, as it does
without us. The same import after `import dprotonet` works, a failed one before it or not.
"""

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


class _ImportGuard:
    """Is asked for every module before it is first imported; finds none itself."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name in ("torchvision", "timm") and name not in sys.modules:
            _forget_submodules(name)
        elif name == "torchvision._meta_registrations":
            # The first module that needs the operators; the compiled part has had its turn to register them.
            _declare_missing_operators()


def _forget_submodules(package: str) -> None:
    """A failed import leaves the submodules that it got to behind; they belong to a package that is gone."""
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        del sys.modules[name]


def guard_imports() -> None:
    """Let torchvision and timm be imported on any build of torch, from now on; imports nothing itself."""
    if not any(isinstance(finder, _ImportGuard) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ImportGuard())


def import_guarded(name: str) -> ModuleType:
    """Import torchvision, timm or something that imports them, late: they take seconds."""
    guard_imports()
    return importlib.import_module(name)


def keep_freed_memory() -> None:
    """Let glibc keep large freed blocks instead of handing them back to the kernel after every layer.

    On a CPU each step allocates and frees the same tens of megabytes; faulting and zeroing them anew took a
    third of the time of a forward pass. A process-wide setting, so the commands make it, never the library.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # musl has none
        trim_threshold, mmap_threshold = -1, -3
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(mmap_threshold, 2**30)
