"""Pages of the site that stand outside docs/: README as its home, and every file that a page links to.

mkdocs calls the two functions (`hooks` of mkdocs.yml). Links are rewritten, text is not. A link to a file
that is not in the repository stays as it is, so that a strict build complains.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
_TITLED = ("CONTRIBUTING.md", "CHANGELOG.md", "RELEASING.md")
PAGES = {"README.md": "index.md", **{name: name for name in _TITLED}}
"""Files of the repository that are pages of the site."""
_LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[#)])")
_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", flags=re.DOTALL)
_NOTE = re.compile(r"\[(\d+)\](?!\()")  # "[2]" is the number of a note, not a reference to a name


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages, and the files outside docs/ that any page links to."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    wanted = {target for page in files.documentation_pages() for _, target in _outside(page)}
    for target in sorted(wanted - set(PAGES)):
        content = (ROOT / target).read_bytes()
        files.append(File.generated(config, _place(target), content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Links as seen from the page's place in the site, and numbers of notes as they are."""
    found = dict(_outside(page.file))
    here = page.file.src_uri.rpartition("/")[0]
    linked = _LINK.sub(lambda link: _rewritten(link[0], found, here, origin=_origin(page.file)), markdown)
    pieces = _CODE.split(linked)  # code is every other one
    pieces[::2] = [_NOTE.sub(r"\\[\1\\]", text) for text in pieces[::2]]
    return "".join(pieces)


def _rewritten(link: str, outside: dict[str, str], here: str, *, origin: str) -> str:
    if link in outside:
        return relpath(_place(outside[link]), here or ".")
    in_docs = normpath(f"{origin}/{link}").removeprefix("docs/")
    return relpath(in_docs, here or ".") if origin == "." and link.startswith("docs/") else link


def _outside(page: File) -> Iterator[tuple[str, str]]:
    """Links of a page to files of the repository outside docs/, and their paths in the repository."""
    for link in _LINK.findall(page.content_string):
        target = normpath(f"{_origin(page)}/{link}")
        if not target.startswith("docs/") and (ROOT / target).is_file():
            yield link, target


def _origin(page: File) -> str:
    """The folder of the repository that a page's links start from."""
    if page.src_uri in PAGES.values():
        return "."
    return normpath(f"docs/{page.src_uri.rpartition('/')[0]}")


def _place(target: str) -> str:
    """Where a file of the repository is in the site; under its own path, so that its name says what it is."""
    return PAGES.get(target, f"repository/{target}")
