"""What the service found, in the words of the API."""

import math
from dataclasses import asdict

from dprotonet.experiment.evaluation.calibration import measured_sets, promised
from dprotonet.experiment.explaining.row_marks import RowMark
from dprotonet.experiment.runs.familiarity import warning_of
from dprotonet.experiment.runs.place import Place
from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.figures.style import sentence
from dprotonet.web import schemas
from dprotonet.web.image_record import ImageRecord
from dprotonet.web.job import Job
from dprotonet.web.service import Service


def reading(service: Service, key: str, question: schemas.Question) -> schemas.Reading:
    """Prediction and evidence for a class; rows and rest add up to its score."""
    seen, classes = service.image(key), service.model.classes
    off = service.prototypes(question.off)
    predicted = seen.answer.label(off)
    label = service.label(seen, question.label, off)
    logits, silent = seen.answer.logits(off), set(off)
    evidence = [item for item in seen.answer.evidence(label, off) if item.prototype not in silent]
    shown, others = evidence[: question.top], evidence[question.top :]
    score = math.fsum(item.contribution for item in evidence) if evidence else float(logits[label])
    return schemas.Reading(
        image=key,
        name=seen.name,
        width=seen.extent[0],
        height=seen.extent[1],
        predicted=predicted,
        label=label,
        class_name=classes[label],
        probabilities=_probabilities(service, seen.answer.probabilities(off).tolist()),
        score=score,
        predicted_score=float(logits[predicted]),
        rows=[_row(item, seen.marks.find(str(item.prototype))) for item in shown],
        others=len(others),
        rest=score - sum(item.contribution for item in shown) if evidence else 0.0,
        rest_for=sum(max(item.contribution, 0.0) for item in others),
        rest_against=sum(min(item.contribution, 0.0) for item in others),
        truth=classes.index(seen.truth) if seen.truth in classes else None,
        truth_name=seen.truth,
        familiar=seen.answer.familiar,
        distance=seen.answer.distance,
        calibrated=service.model.calibration is not None,
        warning=sentence(warning_of(seen.answer.distance)),
        sets=[] if off else _sets(service, seen),
    )


def mark_facts(mark: RowMark) -> schemas.RowMarkFacts:
    """What a row is worth."""
    return schemas.RowMarkFacts(
        reliability=mark.kept,
        word=mark.word,
        said=mark.said,
        place_rank=mark.rank,
        place_limit=mark.limit,
        places_differ=mark.differ,
        warning=mark.warning,
    )


def calibration_facts(service: Service) -> schemas.CalibrationFacts | None:
    """What the run's probabilities are fitted to, and the sets that they allow."""
    known = service.model.calibration
    if known is None:
        return None
    measured = measured_sets(service.model.folder, service.model.network)
    sets = [
        schemas.SetFacts(coverage=share, **(asdict(measured[share]) if share in measured else {}))
        for share in promised(known)
    ]
    return schemas.CalibrationFacts(images=known.images, source=known.source, sets=sets)


def _sets(service: Service, seen: ImageRecord) -> list[schemas.ClassSet]:
    known, classes = service.model.calibration, service.model.classes
    if known is None:
        return []
    shares = seen.answer.probabilities()
    found = {coverage: known.class_set(shares, coverage) for coverage in promised(known)}
    return [
        schemas.ClassSet(coverage=coverage, labels=labels, class_names=[classes[one] for one in labels])
        for coverage, labels in found.items()
    ]


def job_facts(job: Job) -> schemas.JobFacts:
    """How far a job is."""
    return schemas.JobFacts(
        job=job.id,
        state=job.state,
        done=job.done,
        total=job.total,
        step=job.step,
        message=job.message,
        result=job.result if isinstance(job.result, dict) else None,
    )


def _probabilities(service: Service, shares: list[float]) -> list[schemas.Probability]:
    order = sorted(range(len(shares)), key=lambda label: -shares[label])
    classes = service.model.classes
    return [
        schemas.Probability(label=label, class_name=classes[label], probability=shares[label])
        for label in order
    ]


def _box(place: Place | None) -> schemas.PlaceBox | None:
    return None if place is None else schemas.PlaceBox(**asdict(place.shown))


def _row(item: EvidenceItem, mark: RowMark | None) -> schemas.EvidenceRow:
    return schemas.EvidenceRow(
        prototype=item.prototype,
        class_name=item.class_name,
        source=item.source,
        part=item.part,
        like=item.words,
        place=_box(item.place),
        source_place=_box(item.source_place),
        similarity=item.similarity,
        weight=item.weight,
        points=item.contribution,
        lead=item.lead,
        rival=item.rival,
        ahead=item.ahead,
        mark=None if mark is None else mark_facts(mark),
    )
