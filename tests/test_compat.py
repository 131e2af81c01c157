"""torchvision and timm beside any build of torch; memory kept.

Each order of imports has a process of its own. Beside a CPU build of torch and a torchvision built for CUDA
they fail without the guard; beside a matching pair of wheels they pass with and without it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dprotonet.compat import import_guarded, keep_freed_memory

FAILED = """
try:
    import {0}
except RuntimeError as error:
    assert "torchvision::nms" in str(error)
import dprotonet, {0}
"""
ORDERS = {
    "timm": "import dprotonet, timm",
    "torchvision": "import torch, dprotonet, torchvision",
    "timm failed": FAILED.format("timm"),
    "torchvision failed": FAILED.format("torchvision"),
}
USED = """
import torchvision
assert torchvision.models.resnet18().fc.out_features == 1000
assert torchvision.extension in vars(torchvision).values()
"""


def _run(code: str, path: str = "") -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("order", ORDERS)
def test_orders_of_imports(order: str) -> None:
    result = _run(ORDERS[order] + USED)
    assert result.returncode == 0, result.stderr


def test_the_guard_itself_imports_nothing_heavy() -> None:
    heavy = {"torch", "torchvision", "timm", "ctypes"}
    result = _run(f"import sys, dprotonet\nprint(sorted({heavy} & set(sys.modules)))")
    assert result.stdout.strip() == "[]"


def test_the_compiler_of_torch_is_imported_when_it_is_asked_for_and_not_before() -> None:
    result = _run("""
import sys, dprotonet, timm, torchvision
assert not [name for name in sys.modules if name.startswith("torch._dynamo")]
roi_align = sys.modules["torchvision.ops.roi_align"]
assert type(roi_align.__spec__.loader) is type(torchvision.__spec__.loader)
found = roi_align.is_compile_supported("cpu")
import torch._dynamo
assert found == torch._dynamo.utils.is_compile_supported("cpu")
assert torch._dynamo.config.cache_size_limit > 0
""")
    assert result.returncode == 0, result.stderr


def test_whoever_wants_more_of_the_compiler_meanwhile_gets_the_real_one(tmp_path: Path) -> None:
    """As another version of torchvision might, or another thread."""
    package = tmp_path / "torchvision"
    (package / "ops").mkdir(parents=True)
    (package / "__init__.py").write_text("from . import ops", encoding="utf-8")
    (package / "ops" / "__init__.py").write_text("from . import roi_align", encoding="utf-8")
    wanted = "from torch._dynamo.utils import is_compile_supported, counters\nimport torch._dynamo.config"
    (package / "ops" / "roi_align.py").write_text(wanted, encoding="utf-8")
    code = """
import dprotonet, torchvision, torch._dynamo
assert torchvision.ops.roi_align.counters is torch._dynamo.utils.counters
"""
    result = _run(code, path=str(tmp_path))
    assert result.returncode == 0, result.stderr


MATCHING = {  # a torchvision whose compiled part registers its operators, as in every matching pair of wheels
    "__init__.py": "from . import extension, _meta_registrations",
    "extension.py": """
import torch
library = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
""",
    "_meta_registrations.py": "import torch\ntorch.ops.torchvision.nms, torch.ops.torchvision.qnms",
}


def test_operators_that_exist_are_not_declared_again(tmp_path: Path) -> None:
    """To torch a second declaration is an error, before the first or after it."""
    package = tmp_path / "torchvision"
    package.mkdir()
    for name, code in MATCHING.items():
        (package / name).write_text(code, encoding="utf-8")
    result = _run("import dprotonet, torchvision\nprint(torchvision.__file__)", path=str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(package / "__init__.py")


def test_timm_and_torchvision_import_and_work() -> None:
    import torch

    timm, v2 = import_guarded("timm"), import_guarded("torchvision.transforms.v2")
    assert "resnet50" in timm.list_models()
    assert v2.functional.horizontal_flip(torch.tensor([[1, 2]])).tolist() == [[2, 1]]
    assert import_guarded("timm") is timm


def test_an_error_of_another_kind_is_not_swallowed() -> None:
    code = "from dprotonet.compat import import_guarded\nimport_guarded('no_such_module')"
    result = _run(code)
    assert "ModuleNotFoundError" in result.stderr


def test_keeping_memory_is_harmless_anywhere() -> None:
    keep_freed_memory()
    keep_freed_memory()
