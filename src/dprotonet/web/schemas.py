"""What goes over the wire, in words that a reader of the API understands without the code."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MOST_NUMBERS = 100_000
"""Prototypes that a request may name; a body of a megabyte holds about as many."""
Prototypes = Annotated[list[int], Field(max_length=MOST_NUMBERS, description="numbers of prototypes")]
Reason = Literal["background", "artefact", "duplicate", "other"]


class Strict(BaseModel):
    """What is sent to us: an unknown field is a mistake."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Problem(BaseModel):
    detail: str


class Health(BaseModel):
    status: Literal["ok"]
    waiting: dict[str, int] = Field(description="tasks that wait for each worker")


class LimitFacts(BaseModel):
    megabytes: float
    megapixels: float


class ExplainerFacts(BaseModel):
    label: str = Field(description="what people call it")
    cost: str = Field(description="forward passes per image, in words")


class SetFacts(BaseModel):
    """A promise of prediction sets, and what was measured of it on test images."""

    coverage: float = Field(description="how often the true class is promised to be in the set")
    images: int = Field(default=0, description="test images it was measured on, by dprotonet evaluate")
    covered: float | None = Field(default=None, description="share of these with the true class in the set")
    mean_size: float | None = Field(default=None, description="classes in a set, on average")


class CalibrationFacts(BaseModel):
    """What probabilities were fitted to, and which prediction sets they allow."""

    images: int
    source: str
    sets: list[SetFacts] = Field(description="empty where an older version calibrated: calibrate again")


class RunName(BaseModel):
    model: int = Field(description="what ?model= of any request asks for")
    name: str


class RunFacts(BaseModel):
    """What is served."""

    name: str
    model: int = Field(default=0, description="which of `runs` this is")
    runs: list[RunName] = Field(description="one, or two that are served side by side")
    key: str = Field(description="another one whenever the server starts; pictures may be kept under it")
    classes: list[str]
    prototypes: int = Field(description="0 for a black box, which gives no evidence")
    plain: bool = Field(default=False, description="true: a network from elsewhere, without run and data")
    task: str = Field(default="single", description="single, binary or multilabel: what probabilities are of")
    sources: bool = Field(description="false where the training images of prototypes are unknown: no places")
    image_size: int
    calibration: CalibrationFacts | None = Field(
        default=None, description="null: probabilities are the softmax of the scores, no promise"
    )
    methods: list[str] = Field(description="for maps of a class, those that are installed")
    explainers: dict[str, ExplainerFacts] = Field(description="more about each of the methods")
    decoder: str = Field(description="which decoder makes heatmaps, and whether the run's recipe has another")
    meanings: dict[str, str] = Field(description="what the numbers of the page mean, in a sentence each")
    heat: list[str] = Field(description="colours of heatmaps, from ignored to decisive")
    limits: LimitFacts
    version: str


class Probability(BaseModel):
    label: int
    class_name: str
    probability: float


class PlaceBox(BaseModel):
    """A place on an image, as shares of its height (top, height) and width (left, width)."""

    top: float
    left: float
    height: float
    width: float


class RowMarkFacts(BaseModel):
    """What a row is worth: does its place stay under noise, and do its two places look alike?"""

    reliability: float = Field(description="share of eight noisy copies in which the place stays")
    word: str = Field(description="steady, moves or unsteady")
    said: str = Field(description="symbol and word")
    place_rank: float = Field(description="share of places that fit better than the two that are shown")
    place_limit: float | None = Field(description="null until dprotonet reliability has measured it")
    places_differ: bool | None = Field(description="whether the rank is beyond the limit")
    warning: str = Field(description="what to tell people of the two places")


class EvidenceRow(BaseModel):
    """One prototype: similarity × weight = points."""

    prototype: int
    class_name: str = Field(description="the class the prototype belongs to")
    source: str = Field(description="the training image it was taken from")
    part: str = Field(default="", description="what people call the part it stands for")
    like: str = Field(default="looks like", description="what stands between the image and the source")
    place: PlaceBox | None = Field(
        default=None, description="where the image looks like it, with a margin; null where regions are masks"
    )
    source_place: PlaceBox | None = Field(default=None, description="where it lies in its source, likewise")
    similarity: float
    weight: float
    points: float
    lead: float | None = Field(
        default=None, description="points ahead of the same part's prototype of `rival`, where it has one"
    )
    rival: str = Field(default="", description="the likeliest other class")
    ahead: str = Field(default="", description="the same in words")
    mark: RowMarkFacts | None = Field(default=None, description="null until its places have been asked for")


class ClassSet(BaseModel):
    """Classes among which the true one is, as often as `coverage` says, on images like the known ones."""

    coverage: float
    labels: list[int] = Field(description="the likeliest first")
    class_names: list[str]


class Reading(BaseModel):
    """What the network says of an image: rows and rest add up to the score of the class."""

    image: str = Field(description="the id of the image")
    name: str
    width: int
    height: int
    predicted: int
    label: int = Field(description="the class that is explained")
    class_name: str
    probabilities: list[Probability] = Field(description="of all classes, the likeliest first")
    score: float
    predicted_score: float
    rows: list[EvidenceRow]
    others: int = Field(description="how many prototypes are not in a row of their own")
    rest: float = Field(description="what they contribute together")
    rest_for: float
    rest_against: float
    truth: int | None = Field(default=None, description="the class of a test image")
    truth_name: str | None = Field(default=None, description="also where the run does not know that class")
    familiar: bool | None = Field(default=None, description="false: it is unlike the training images")
    distance: float | None = Field(default=None, description="from what is known; the limit is 1")
    warning: str = Field(default="", description="what to tell people of an unfamiliar image")
    calibrated: bool = Field(default=False, description="probabilities were fitted to validation images")
    sets: list[ClassSet] = Field(
        default=[], description="prediction sets; none with prototypes off, for which nothing is promised"
    )


class ComparedRow(BaseModel):
    """What one part or prototype adds to two classes."""

    name: str
    points: float
    versus_points: float
    difference: float = Field(description="above zero for the class, below zero against it")
    prototypes: list[int]


class NearestImage(BaseModel):
    """The training image of a class that the image is most like, by all prototypes."""

    label: int
    class_name: str
    index: int
    name: str


class Compared(BaseModel):
    """Two classes side by side, what speaks against the first one first; all differences add up."""

    label: int
    class_name: str
    versus: int
    versus_name: str
    score: float
    versus_score: float
    sentence: str = Field(description="what decided, made from the numbers")
    differing: list[ComparedRow]
    others: int = Field(description="how many rows are not shown, none larger than those that are")
    others_for: float
    others_against: float
    agreeing: list[ComparedRow] = Field(description="rows that say about as much for both")
    nearest: list[NearestImage] = Field(description="empty while the training images are being gone over")
    nearest_state: Literal["preparing", "ready", "failed"]


class Comparing(Strict):
    """Which two classes to compare, and with which prototypes switched off."""

    label: int = Field(ge=0)
    versus: int = Field(ge=0)
    off: Prototypes = []
    top: int = Field(default=5, ge=1, le=20)


class Question(Strict):
    """Which class to explain, and with which prototypes switched off."""

    label: int | None = Field(default=None, ge=0, description="default: the predicted class")
    off: Prototypes = []
    top: int = Field(default=3, ge=1, le=10)


class PlacesWanted(Strict):
    prototypes: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=10)]


class MapWanted(Strict):
    label: int = Field(ge=0)
    versus: int | None = Field(default=None, ge=0, description="show where it is told apart from this class")
    method: str = Field(default="mdm", max_length=40, description="of two classes also `contrast`")


class JobFacts(BaseModel):
    """Slow work: watch it at /api/jobs/ID/events, end it by DELETE."""

    job: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    done: int
    total: int = Field(description="0 while that is not known")
    step: str = Field(default="", description="what it is doing now, of `done` and `total`")
    message: str = ""
    result: dict[str, str] | None = None


class SampleItem(BaseModel):
    index: int
    name: str
    label: int


class SampleList(BaseModel):
    total: int
    samples: list[SampleItem]
    ready: bool = Field(description="false while the run's data is being read")
    reason: str | None = Field(default=None, description="why there are none")


class GalleryItem(SampleItem):
    predicted: int
    probability: float = Field(description="of the predicted class")
    distance: float | None = Field(description="from what the run knows; the limit is 1")


class GalleryFacts(BaseModel):
    """Test images worth a look; made once, at the first question."""

    state: Literal["preparing", "ready", "failed"]
    done: int = 0
    total: int = 0
    message: str = ""
    images: int = 0
    mistakes: int = 0
    strangers: int | None = Field(default=None, description="beyond the limit; null where it cannot be told")
    calibrated: bool = Field(default=False, description="probabilities were fitted to validation images")
    wrong: list[GalleryItem] = Field(default=[], description="the surest mistakes first")
    uncertain: list[GalleryItem] = Field(default=[], description="the least probable answers first")
    strange: list[GalleryItem] = Field(default=[], description="the farthest from what is known first")


class NearImage(BaseModel):
    index: int
    name: str
    label: int
    similarity: float


class PrototypeItem(BaseModel):
    """One prototype; what it takes the training images to know is null until that is done."""

    prototype: int
    label: int
    class_name: str
    source: str
    sources: list[str] = Field(default=[], description="all training images it was mixed from")
    part: str = Field(default="", description="what people call the part it stands for")
    placed: bool = Field(default=False, description="whether it is a place: /place shows that large")
    weight: float
    purity: float | None = Field(
        default=None, description="share of its `among` nearest images that are of its class"
    )
    among: int | None = Field(
        default=None, description="as many images as its class has, at most all of `nearest`"
    )
    fires: int | None = Field(default=None, description="training images it is the main reason for")
    duplicates: list[int] = []
    nearest: list[NearImage] = []


class NameWanted(Strict):
    """What to call the part that a prototype stands for."""

    name: Annotated[str, Field(max_length=200)]


class PartNamed(BaseModel):
    prototype: int
    part: str


class PrototypeList(BaseModel):
    """At most `limit` prototypes from `offset` on."""

    prototypes: list[PrototypeItem]
    listed: int = Field(default=0, description="how many there are in all, or of the class asked for")
    state: Literal["preparing", "ready", "failed"]
    done: int = 0
    total: int = 0
    message: str = ""


class WhatIfWanted(Strict):
    off: Prototypes = []


class WhatIfFacts(BaseModel):
    state: Literal["preparing", "ready", "failed"]
    done: int = 0
    total: int = 0
    images: int = 0
    accuracy: float | None = None
    before: float | None = Field(default=None, description="with all prototypes on")
    message: str = ""


class CleanWanted(Strict):
    """Prototypes to leave out, and why."""

    reasons: dict[Annotated[str, Field(pattern=r"^[0-9]{1,6}$")], Reason]


class SavingFacts(BaseModel):
    """The latest cleaned run: it is saved whether or not a page is open."""

    job: JobFacts | None = Field(description="null where none was asked for since the server started")
    off: list[int] = Field(default=[], description="the prototypes it leaves out")


class Link(BaseModel):
    path: str
