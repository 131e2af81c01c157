"""A page as a browser's reader meets it: its elements in order, with attributes and text."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "img", "br", "link", "input", "hr"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    inside: tuple[str, ...]  # tags of those it lies in, the outermost first
    text: str = field(default="")


class Outline(HTMLParser):
    """Elements of a page; a tag that is closed in the wrong order is an error."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self.open: list[Element] = []
        self.feed(page)
        self.close()
        assert not self.open, f"never closed: {[item.tag for item in self.open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        item = Element(tag, dict(attrs), tuple(outer.tag for outer in self.open))
        self.elements.append(item)
        if tag not in VOID:
            self.open.append(item)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs), tuple(outer.tag for outer in self.open)))

    def handle_endtag(self, tag: str) -> None:
        found = self.open.pop()
        assert found.tag == tag, f"</{tag}> closes <{found.tag}>"

    def handle_data(self, data: str) -> None:
        for item in self.open:
            item.text += data

    def all(self, *tags: str) -> list[Element]:
        return [item for item in self.elements if item.tag in tags]

    def text(self) -> str:
        (body,) = self.all("body")
        return " ".join(body.text.split())
