"""What tests of several sheets share."""

import pytest

from dprotonet.figures import canvas as canvas_module


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every line of text that is drawn during the test."""
    lines: list[str] = []
    draw = canvas_module.Canvas.text

    def spy(self: canvas_module.Canvas, at: tuple[float, float], text: str, **options: object) -> None:
        lines.append(text)
        draw(self, at, text, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(canvas_module.Canvas, "text", spy)
    return lines
