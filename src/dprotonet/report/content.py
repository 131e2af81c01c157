"""What a report shows, as plain values: no model, no file and no HTML.

`gather` fills these in, `page` shows them. A section that a run cannot have is None or empty, and `missing`
says in plain words what is not there and how to get it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Picture:
    """An image that travels inside the page, and what a listener is told about it."""

    uri: str
    alt: str
    width: int
    height: int


@dataclass(frozen=True)
class Fact:
    """A name and what is to be said of it."""

    name: str
    value: str


@dataclass(frozen=True)
class About:
    """What the model is. `lead` is for everybody, `facts` for the engineer, `settings` to repeat the run."""

    title: str
    lead: str
    facts: tuple[Fact, ...]
    settings: tuple[Fact, ...]
    versions: tuple[Fact, ...]
    command: str


@dataclass(frozen=True)
class Figure:
    """A headline number, and a sentence that says what it means."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True)
class ClassScore:
    """How a class fared: how many images were recognised, and what most others were taken for."""

    name: str
    images: int
    right: int
    taken_for: str | None
    times: int

    @property
    def share(self) -> float | None:
        return self.right / self.images if self.images else None


@dataclass(frozen=True)
class Performance:
    """How good the model is on a split. `confusion` has a row for each true class."""

    split: str
    data: str
    origin: str  # "measured" for this report, or where else the numbers come from
    accuracy: float | None
    balanced_accuracy: float | None
    auroc: float | None  # of two classes
    figures: tuple[Figure, ...]
    classes: tuple[ClassScore, ...]
    confusion: tuple[tuple[int, ...], ...]
    matrix: Picture | None = None  # where a table of numbers would be too large to read
    probabilities: "Probabilities | None" = None  # an older evaluation does not say


@dataclass(frozen=True)
class Probabilities:
    """Whether what is stated in per cent is true."""

    calibrated: bool
    figures: tuple[Figure, ...]
    diagram: Picture | None


@dataclass(frozen=True)
class PushMark:
    """Prototypes were replaced by regions of training images; validation accuracy before and after."""

    epoch: float
    before: float
    after: float


@dataclass(frozen=True)
class Curve:
    """Accuracies in [0, 1] over epochs; `kept` is the epoch whose model this is."""

    epochs: tuple[int, ...]
    train: tuple[float, ...]
    val: tuple[float, ...]
    pushes: tuple[PushMark, ...]
    kept: int | None


@dataclass(frozen=True)
class PrototypeCard:
    """A prototype with its source; what training images say of it is None where nobody has looked."""

    number: int
    source: str
    picture: Picture
    heatmap: Picture | None
    weight: float
    purity: float | None
    among: int  # so many of the nearest training images purity looks at
    fires: int | None
    fires_share: float | None
    twins: tuple[int, ...]
    part: str = ""  # what people call the part it stands for
    sources: int = 1  # so many training images it was mixed from


@dataclass(frozen=True)
class ClassCards:
    """A class and its prototypes, the weightiest first."""

    name: str
    cards: tuple[PrototypeCard, ...]


@dataclass(frozen=True)
class CaseRow:
    """This region looks like that region: similarity × weight = points. A place may be unknown.

    `like` is what stands between the two: "looks like", or "its beak, like the beak of".
    """

    prototype: int
    class_name: str
    source: str
    place: Picture | None
    source_picture: Picture
    source_placed: bool
    similarity: float
    weight: float
    points: float
    like: str = "looks like"
    ahead: str = ""
    mark: str = ""  # does the place stay under noise
    differ: str = ""  # a warning where the two places do not look alike


@dataclass(frozen=True)
class Argument:
    """What speaks for one class in one image, adding up to its score."""

    class_name: str
    role: str
    rows: tuple[CaseRow, ...]
    others: int  # prototypes without a row
    score: float

    @property
    def rest(self) -> float:
        """What the other prototypes say together, such that the rounded numbers of the page add up."""
        return round(self.score, 2) - sum(round(row.points, 2) for row in self.rows)


@dataclass(frozen=True)
class Likely:
    """A class and its probability."""

    class_name: str
    probability: float
    true: bool


@dataclass(frozen=True)
class ComparedRow:
    """What one part or prototype adds to the predicted class, and what to the true one."""

    name: str
    points: float
    other_points: float

    @property
    def difference(self) -> float:
        """Of the numbers as the page rounds them."""
        return round(self.points, 2) - round(self.other_points, 2)


@dataclass(frozen=True)
class NearestImage:
    """The training image of a class that an image is most like."""

    class_name: str
    name: str
    picture: Picture


@dataclass(frozen=True)
class ComparedClasses:
    """The predicted class beside the true one, what speaks against the prediction first."""

    said: str
    truth: str
    logits: tuple[float, float]
    sentence: str
    differing: tuple[ComparedRow, ...]
    others: int  # rows that are not shown, none larger than those that are
    others_for: float
    others_against: float
    agreeing: tuple[ComparedRow, ...]
    nearest: tuple[NearestImage, ...]  # of the predicted class, then of the true one
    told_apart: Picture | None = None  # where in the image, in a colour for each


@dataclass(frozen=True)
class ReportCase:
    """One test image, what it is, what the model said, and why."""

    name: str
    truth: str
    said: str
    probability: float
    picture: Picture
    likely: tuple[Likely, ...]
    arguments: tuple[Argument, ...]
    warning: str = ""  # where nothing in the image looks like what the run knows
    calibrated: bool = False
    contrast: str = ""  # why this class and not the next one
    compared: ComparedClasses | None = None  # of a mistake

    @property
    def right(self) -> bool:
        return self.truth == self.said


@dataclass(frozen=True)
class CaseGroup:
    """Images of one kind. `key` names the section."""

    key: str
    title: str
    introduction: str
    cases: tuple[ReportCase, ...]


@dataclass(frozen=True)
class Mistake:
    """An image that was taken for another class, at a glance."""

    name: str
    truth: str
    said: str
    probability: float
    picture: Picture
    compared: ComparedClasses | None = None


@dataclass(frozen=True)
class Mistakes:
    """The surest mistakes, and how many there are in all."""

    shown: tuple[Mistake, ...]
    total: int


@dataclass(frozen=True)
class MeasureColumn:
    """A measure of heatmaps, in words."""

    name: str
    better: str  # "higher" or "lower"
    meaning: str


@dataclass(frozen=True)
class MeasureCell:
    """A mean as it is written, and whether it is surely the best of its column."""

    text: str
    best: bool


@dataclass(frozen=True)
class MeasureRow:
    """A method of making heatmaps; a control is there to be beaten."""

    method: str
    control: bool
    cells: tuple[MeasureCell, ...]
    seconds: str


@dataclass(frozen=True)
class MeasureTable:
    """Measures of one kind."""

    title: str
    columns: tuple[MeasureColumn, ...]
    rows: tuple[MeasureRow, ...]


@dataclass(frozen=True)
class ComparisonSection:
    """What `dprotonet compare` measured."""

    folder: str
    images: int
    tables: tuple[MeasureTable, ...]
    protocol: tuple[Fact, ...]
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Report:
    """The whole page."""

    about: About
    made: str
    prototyped: bool
    key: Picture  # what the colours of heatmaps mean
    performance: Performance | None
    curve: Curve | None
    classes: tuple[ClassCards, ...]
    groups: tuple[CaseGroup, ...]
    mistakes: Mistakes | None
    comparison: ComparisonSection | None
    missing: tuple[str, ...]
    clinical: bool = False  # written for doctors
