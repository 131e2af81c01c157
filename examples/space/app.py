"""A Space: upload an image, see the class and where the network looks. Needs `pip install dprotonet gradio`.

MODEL=OWNER/NAME python app.py        # a model of the hub, a run folder, or timm:NAME
"""

import os
from typing import Any

from PIL import Image

import dprotonet as dp

METHOD = os.environ.get("METHOD", "mdm")
LIKELY = 3


def answer(explain: dp.ImageExplainer, image: Image.Image | None, target: str | None) -> tuple[Any, Any, str]:
    """Probabilities by class, the image under its heatmap, and a sentence."""
    if image is None:
        return None, None, "Choose an image first."
    try:
        (found,) = explain(image, target=target or None, top=1)
    except dp.UserError as error:
        return None, None, str(error)
    warning = " It is unlike the training images: be careful." if found.familiar is False else ""
    said = f"The heatmap shows what speaks for {found.class_name} ({found.said}).{warning}"
    heated = found.explanation.overlay(found.picture)
    return dict(found.likely[:LIKELY]), heated, said


def build(explain: dp.ImageExplainer) -> Any:
    """The page."""
    import gradio

    with gradio.Blocks(title=f"Why? {explain.classifier.name}") as page:
        count = len(explain.classes)
        gradio.Markdown(f"# Why?\n{explain.classifier.name}: {count} classes. Not for diagnosis.")
        with gradio.Row():
            with gradio.Column():
                image = gradio.Image(type="pil", label="Image")
                choices = ["", *explain.classes]
                target = gradio.Dropdown(choices, label="Class to explain (empty: the predicted)")
                button = gradio.Button("Explain", variant="primary")
            with gradio.Column():
                outputs = [gradio.Label(label="Likely"), gradio.Image(label="Heatmap"), gradio.Markdown()]
        button.click(lambda given, label: answer(explain, given, label), [image, target], outputs)
    return page


if __name__ == "__main__":
    model = os.environ.get("MODEL", "timm:tf_efficientnet_lite0:packaged")
    build(dp.explainer(model, method=METHOD)).launch()
