"""The page for a Space: what it answers, and that Gradio can serve it where that is installed."""

import importlib.util
from pathlib import Path
from types import ModuleType
from urllib.request import urlopen

import pytest
from PIL import Image

import dprotonet as dp

APP = Path(__file__).resolve().parents[2] / "examples" / "space" / "app.py"


@pytest.fixture(scope="module")
def app() -> ModuleType:
    spec = importlib.util.spec_from_file_location("space_app", APP)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def explain(run_folder: Path) -> dp.ImageExplainer:
    return dp.explainer(run_folder, method="gradcam")


def bird() -> Image.Image:
    return Image.fromarray(dp.Birds(per_species=1, split="test", size=64)[0].image.permute(1, 2, 0).numpy())


def test_it_answers(app: ModuleType, explain: dp.ImageExplainer) -> None:
    likely, heated, said = app.answer(explain, bird(), "")
    assert max(likely, key=likely.get) in said
    assert heated.size == (64, 64)
    assert heated.tobytes() != bird().tobytes()
    _, _, asked = app.answer(explain, bird(), explain.classes[2])
    assert explain.classes[2] in asked


def test_without_an_image_it_says_so(app: ModuleType, explain: dp.ImageExplainer) -> None:
    assert app.answer(explain, None, "") == (None, None, "Choose an image first.")


def test_gradio_serves_it(app: ModuleType, explain: dp.ImageExplainer) -> None:
    pytest.importorskip("gradio")
    page = app.build(explain)
    _, address, _ = page.launch(prevent_thread_lock=True, server_name="127.0.0.1", quiet=True)
    try:
        with urlopen(address) as answer:
            assert b"gradio" in answer.read().lower()
    finally:
        page.close()
