"""What differs from machine to machine: builds of torchvision, and how memory is kept.

torchvision's wheel is built for CUDA. Beside a CPU-only torch its import fails, and timm's with it, because
the schemas of two operators that its compiled part should have registered are missing. We never call them;
declaring them is enough. `import dprotonet` watches for that import and then declares what is missing, so
that anyone can import torchvision and timm afterwards. Where the operators exist, as in every matching pair
of wheels, nothing is declared.

The same watch keeps torch's compiler out: torchvision and timm import it for two functions that we never
call, which took half the time that a command needs to start. It is imported when somebody asks for it.

Before `import dprotonet` nothing of ours has run: on such a machine `import timm` fails there, as it does
without us. The same import after `import dprotonet` works, a failed one before it or not.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from functools import cache, wraps
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
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
    """Is asked for every module before it is first imported; finds none itself, but one that it changes."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        if name in ("torchvision", "timm") and name not in sys.modules:
            _forget_submodules(name)
        elif name == "torchvision._meta_registrations":
            # The first module that needs the operators; the compiled part has had its turn to register them.
            _declare_missing_operators()
        elif name in _WITHOUT_NEED and _COMPILER not in sys.modules:
            spec = PathFinder.find_spec(name, path)
            if spec is not None and spec.loader is not None:
                spec.loader = _WithoutCompiler(spec.loader)
            return spec
        return None


_COMPILER = "torch._dynamo"
_WITHOUT_NEED = ("torchvision.ops.roi_align", "timm.models.naflexvit")
"""Modules that import the compiler to ask what it supports, or to tell it what it must not compile."""


class _WithoutCompiler(Loader):
    """Runs a module that imports torch's compiler with something in its place, until it is used."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        standing_in = {name: _Late(name) for name in (_COMPILER, f"{_COMPILER}.utils")}
        sys.modules.update(standing_in)
        try:
            self.loader.exec_module(module)
        finally:
            for name, late in standing_in.items():
                if sys.modules.get(name) is late:
                    del sys.modules[name]
            module.__loader__ = self.loader
            if module.__spec__ is not None:
                module.__spec__.loader = self.loader


class _Late(ModuleType):
    """In a module's place while another is imported; any name but the one function is the real one."""

    def __getattr__(self, name: str) -> object:
        if name == "__path__":  # a package, so that its modules can be asked for
            return []
        if name in _LATE:
            return _LATE[name]
        if name.startswith("__"):  # whoever goes through all modules asks for these
            raise AttributeError(name)
        for stand_in in (_COMPILER, f"{_COMPILER}.utils"):
            if isinstance(sys.modules.get(stand_in), _Late):
                del sys.modules[stand_in]
        return getattr(importlib.import_module(self.__name__), name)


def _is_compile_supported(device_type: str) -> bool:
    return bool(importlib.import_module(f"{_COMPILER}.utils").is_compile_supported(device_type))


def _disable(function: Callable[..., object], recursive: bool = True, **words: object) -> object:
    """Of `torch._dynamo`: while that is not imported nothing is compiled, and the function is what it was."""
    real: list[Callable[..., object]] = []

    @wraps(function)
    def late(*given: object, **named: object) -> object:
        if _COMPILER not in sys.modules:
            return function(*given, **named)
        if not real:
            real.append(sys.modules[_COMPILER].disable(function, recursive, **words))
        return real[0](*given, **named)

    return late


_LATE = {"is_compile_supported": _is_compile_supported, "disable": _disable}


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
