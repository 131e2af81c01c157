import subprocess
import sys

from dprotonet.compat import import_guarded, keep_freed_memory


def test_timm_and_torchvision_import_and_work() -> None:
    import torch

    timm, v2 = import_guarded("timm"), import_guarded("torchvision.transforms.v2")
    assert "resnet50" in timm.list_models()
    assert v2.functional.horizontal_flip(torch.tensor([[1, 2]])).tolist() == [[2, 1]]
    assert import_guarded("timm") is timm


def test_an_error_of_another_kind_is_not_swallowed() -> None:
    code = "from dprotonet.compat import import_guarded\nimport_guarded('no_such_module')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError" in result.stderr


def test_keeping_memory_is_harmless_anywhere() -> None:
    keep_freed_memory()
    keep_freed_memory()
