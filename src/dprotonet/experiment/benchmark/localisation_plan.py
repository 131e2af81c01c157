"""What a plan says of heatmaps: which networks, explained how, on which test images, by what protocol.

    [localisation]
    methods = ["similarity", "mdm", "gradcam"]    # every row by every method …
    images = 50                                   # … on so many test images that have truth

    [localisation]
    images_per_class = 10                         # drawn by `seed` from all test images
    [[localisation.line]]                         # … or lines of one's own, as in the paper's tables
    name = "Grad-CAM"
    row = "black box"
    method = "gradcam"

Unknown keys, rows and methods are errors that name the known ones, before anything is trained.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from dprotonet.errors import UserError
from dprotonet.experiment.compare.method import CONTROLS, check_method, needs_prototypes
from dprotonet.metrics.faithfulness import RiseProtocol
from dprotonet.metrics.measures import OVERLAPS, Measure, Protocol


class Line(NamedTuple):
    """One line of the table: a network of the plan, and what explains it."""

    name: str
    row: str
    method: str

    @property
    def control(self) -> bool:
        """Whether it only shows what luck or habit would score."""
        return self.method in CONTROLS


@dataclass(frozen=True)
class LocalisationPlan:
    """The lines of the table, the images that all of them are about, and the protocol."""

    methods: tuple[str, ...] = ("similarity", "mdm", "gradcam")
    line: tuple[Line, ...] = ()
    measures: tuple[str, ...] = ()  # columns to show; none: all of the paper's, and soft AD and AI
    images: int = 50  # with truth
    images_per_class: int | None = None  # instead: so many of each class, whether they have truth or not
    seed: int = 0  # of the draw
    top: float = 0.2  # share of the pixels that is compared with the truth
    keep: float = 0.5  # share of the pixels that AD and AI of the percentile form leave
    steps: int = 28  # of deletion and insertion
    truth: str = "truth"  # what the truth is, for heads: the lesion, say
    named: bool = False  # whether the lines have names of their own

    @property
    def protocol(self) -> Protocol:
        return Protocol(RiseProtocol(steps=self.steps), keep=self.keep, top=self.top)

    @property
    def columns(self) -> tuple[Measure, ...]:
        """The measures of the table, the paper's own eight first."""
        percent = f"{100 * self.keep:.10g}"
        first = (f"AD{percent}", f"AI{percent}", "deletion", "insertion", *OVERLAPS)
        by_name = {measure.name: measure for measure in self.protocol.measures}
        return tuple(by_name[name] for name in self.measures or (*first, "AD", "AI"))

    def methods_of(self, row: str) -> tuple[str, ...]:
        """Every way in which a network is explained."""
        return tuple(dict.fromkeys(line.method for line in self.line if line.row == row))


_KEYS = tuple(item.name for item in fields(LocalisationPlan) if item.name != "named")


def localisation_plan(given: Any, networks: Mapping[str, str], *, where: str) -> LocalisationPlan | None:
    """The section of a plan, None if there is none; `networks` are the plan's rows with their words."""
    if given is None:
        return None
    place = f"{where}: localisation"
    unknown = [key for key in given if key not in _KEYS] if isinstance(given, dict) else [str(given)]
    if unknown:
        known = ", ".join(_KEYS)
        raise UserError(f"{where}: unknown key '{unknown[0]}' in [localisation]; known keys: {known}")
    for one, other in (("methods", "line"), ("images", "images_per_class")):
        if one in given and other in given:
            raise UserError(f"{place} has both {one} and {other}; keep one of them")
    if not networks:
        raise UserError(f"{place} needs a row with a network; baselines have no heatmaps")
    named = "line" in given
    lines = _given_lines(given, networks, place) if named else _all_lines(given, networks, place)
    plan = LocalisationPlan(**{**given, **_lists(given, place), "line": lines, "named": named})
    _check_numbers(plan, place)
    _check_measures(plan, place)
    return plan


def _lists(given: Mapping[str, Any], place: str) -> dict[str, tuple[str, ...]]:
    found = {}
    for key, example in (("methods", '["mdm", "gradcam"]'), ("measures", '["DICE", "sensitivity"]')):
        names = given.get(key)
        if names is None:
            continue
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise UserError(f"{place}.{key} must be a list, such as {example}")
        found[key] = tuple(dict.fromkeys(names))
    return found


def _all_lines(given: Mapping[str, Any], networks: Mapping[str, str], place: str) -> tuple[Line, ...]:
    """Every row by every method that it can be explained by."""
    methods = _lists(given, place).get("methods", LocalisationPlan.methods)
    for name in methods:
        _check_method(name, f"{place}.methods")
    return tuple(
        Line(f"{row}: {method}", row, method)
        for row, network in networks.items()
        for method in methods
        if network != "blackbox" or not needs_prototypes(method)
    )


def _given_lines(given: Mapping[str, Any], networks: Mapping[str, str], place: str) -> tuple[Line, ...]:
    items = given["line"]
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
        raise UserError(f"{place}.line is a list: write [[localisation.line]] with name, row and method")
    lines = [_line(item, networks, place) for item in items]
    names = [line.name for line in lines]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError(f"{place}: two lines are called '{twice[0]}'; give them different names")
    return tuple(lines)


def _line(item: Mapping[str, Any], networks: Mapping[str, str], place: str) -> Line:
    wrong = [key for key in item if key not in Line._fields]
    missing = [key for key in Line._fields if not isinstance(item.get(key), str)]
    if wrong or missing:
        what = f"unknown key '{wrong[0]}'" if wrong else f"no {missing[0]}"
        raise UserError(f"{place}: {what} in a [[localisation.line]]; it has name, row and method")
    line = Line(**item)
    place = f"{place}, line '{line.name}'"
    if line.row not in networks:
        raise UserError(f"{place}: the plan has no row '{line.row}'; its rows are {', '.join(networks)}")
    _check_method(line.method, place)
    if networks[line.row] == "blackbox" and needs_prototypes(line.method):
        raise UserError(f"{place}: {line.method} needs prototypes, and row '{line.row}' is a black box")
    return line


def _check_method(name: str, place: str) -> None:
    try:
        check_method(name)
    except UserError as error:
        raise UserError(f"{place}: {error}") from None


def _check_numbers(plan: LocalisationPlan, place: str) -> None:
    counts: Sequence[tuple[str, Any]] = [("images", plan.images), ("steps", plan.steps)]
    if plan.images_per_class is not None:
        counts = [*counts, ("images_per_class", plan.images_per_class)]
    for name, count in counts:
        if type(count) is not int or count < 1:
            raise UserError(f"{place}.{name} is {count!r}; it is a number from 1 on")
    for name, share in (("top", plan.top), ("keep", plan.keep)):
        if not isinstance(share, float) or not 0 < share < 1:
            raise UserError(f"{place}.{name} is {share!r}; it is a share, between 0 and 1")
    if type(plan.seed) is not int:
        raise UserError(f"{place}.seed is {plan.seed!r}; it is a whole number")
    if not isinstance(plan.truth, str) or not plan.truth:
        raise UserError(f'{place}.truth is {plan.truth!r}; it is a word for heads, such as "lesion"')


def _check_measures(plan: LocalisationPlan, place: str) -> None:
    known = [measure.name for measure in plan.protocol.measures]
    unknown = [name for name in plan.measures if name not in known]
    if unknown:
        raise UserError(f"{place}.measures: unknown '{unknown[0]}'; known: {', '.join(known)}")
