"""The run itself over HTTP: what it is, its prototypes, and what if some were switched off."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response

from dprotonet.experiment.explaining.explain import decoder_said
from dprotonet.experiment.prototypes.facts import PrototypeFacts
from dprotonet.figures import HEAT
from dprotonet.figures.meanings import MEANINGS
from dprotonet.version import __version__
from dprotonet.web import schemas
from dprotonet.web.reading import calibration_facts, job_facts
from dprotonet.web.routes import PNG, REFUSALS, Number, Served, picture_response
from dprotonet.web.service import Service

router = APIRouter(prefix="/api", responses=REFUSALS)
_SHOWN = tuple(schemas.GalleryItem.model_fields)


@router.get("/run")
async def run(service: Served) -> schemas.RunFacts:
    """What is served."""
    limits = service.settings.limits
    return schemas.RunFacts(
        name=service.name,
        model=service.number,
        runs=[schemas.RunName(model=one.number, name=one.name) for one in service.together],
        key=service.key,
        classes=list(service.model.classes),
        prototypes=len(service.model.prototypes),
        plain=service.plain,
        task=service.model.task.kind,
        sources=service.model.has_sources,
        image_size=service.model.config.data.image_size,
        calibration=calibration_facts(service),
        methods=list(service.methods),
        explainers={
            name: schemas.ExplainerFacts(label=entry.shown, cost=entry.cost)
            for name, entry in service.methods.items()
        },
        decoder=decoder_said(service.model, service.settings.preset),
        meanings=dict(MEANINGS),
        heat=list(HEAT),
        limits=schemas.LimitFacts(megabytes=limits.megabytes, megapixels=limits.megapixels),
        version=__version__,
    )


@router.get("/prototypes/{prototype}/picture", response_class=Response, responses=picture_response(PNG))
async def prototype_picture(prototype: Number, service: Served) -> Response:
    """The training image that a prototype was taken from."""
    data = await asyncio.wrap_future(service.source_picture(prototype))
    return Response(data, media_type=PNG, headers={"Cache-Control": "private, max-age=3600"})


@router.get("/prototypes/{prototype}/place", response_class=Response, responses=picture_response(PNG))
async def prototype_place(prototype: Number, service: Served) -> Response:
    """A prototype's place, large, its training image in a corner.

    Where it has no place the whole image, with its heatmap once that has been made (by explaining an image).
    """
    data = await asyncio.wrap_future(service.source_place(prototype))
    if service.model.prototypes[prototype].place is None:  # a heatmap may come
        return Response(data, media_type=PNG)
    return Response(data, media_type=PNG, headers={"Cache-Control": "private, max-age=3600"})


@router.post("/prototypes/{prototype}/name")
async def name_part(prototype: Number, wanted: schemas.NameWanted, service: Served) -> schemas.PartNamed:
    """Give the part that a prototype stands for a name; it is kept in the run folder."""
    said = await asyncio.wrap_future(service.name_part(prototype, wanted.name))
    return schemas.PartNamed(prototype=prototype, part=said)


@router.get("/prototypes")
async def prototypes(
    service: Served,
    label: Annotated[int | None, Query(ge=0, le=2**31 - 1, description="of this class only")] = None,
    offset: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> schemas.PrototypeList:
    """A page of prototypes; purity and nearest images come once the training images have been gone over."""
    if not service.model.prototypes:
        return schemas.PrototypeList(prototypes=[], state="ready")
    prepared = service.reviewing.facts
    found, numbers = prepared.ask(), service.numbers_of(label)
    page = numbers[offset : offset + limit]
    items = [_item(found[number], service) for number in page] if found else _plain_items(service, page)
    return schemas.PrototypeList(
        prototypes=items,
        listed=len(numbers),
        state=prepared.state,
        done=prepared.done,
        total=prepared.total,
        message=prepared.message,
    )


@router.get("/gallery")
async def gallery(service: Served) -> schemas.GalleryFacts:
    """The most wrong, the least certain, the strangest test images; gone over at the first question."""
    prepared = service.reviewing.gallery
    found = prepared.ask()
    facts = schemas.GalleryFacts(
        state=prepared.state, done=prepared.done, total=prepared.total, message=prepared.message
    )
    if found is None:
        return facts
    lists = {
        name: [schemas.GalleryItem(**{key: getattr(one, key) for key in _SHOWN}) for one in images]
        for name, images in (
            ("wrong", found.wrong),
            ("uncertain", found.uncertain),
            ("strange", found.strange),
        )
    }
    counts = {"images": found.images, "mistakes": found.mistakes, "strangers": found.strangers}
    calibrated = service.model.calibration is not None
    return facts.model_copy(update={"state": "ready", "calibrated": calibrated, **counts, **lists})


@router.post("/what-if")
async def what_if(wanted: schemas.WhatIfWanted, service: Served) -> schemas.WhatIfFacts:
    """Accuracy on the test data with prototypes switched off; its scores are made at the first question."""
    off, prepared = service.prototypes(wanted.off), service.reviewing.test
    found = prepared.ask()
    facts = schemas.WhatIfFacts(
        state=prepared.state, done=prepared.done, total=prepared.total, message=prepared.message
    )
    if found is None:
        return facts
    before, after = await asyncio.wrap_future(
        service.answering.submit(lambda: (found.accuracy(()), found.accuracy(off)))
    )
    return facts.model_copy(
        update={"state": "ready", "accuracy": after, "before": before, "images": len(found.labels)}
    )


@router.post("/cleaned", status_code=202)
async def cleaned(wanted: schemas.CleanWanted, service: Served) -> schemas.JobFacts:
    """Save a run without these prototypes, its last layer trained again, in the server's own folder.

    It goes on when nobody watches. One at a time: the same wish twice is one job, another one is refused.
    """
    return job_facts(service.clean({int(number): reason for number, reason in wanted.reasons.items()}))


@router.get("/cleaned")
async def saving(service: Served) -> schemas.SavingFacts:
    """The cleaned run that is being saved, or was saved last: how far it is, and where it lies."""
    job = service.saving.job
    facts = None if job is None else job_facts(job)
    return schemas.SavingFacts(job=facts, off=sorted(service.saving.reasons))


def _item(facts: PrototypeFacts, service: Service) -> schemas.PrototypeItem:
    near = [
        schemas.NearImage(index=one.index, name=one.name, label=one.label, similarity=one.similarity)
        for one in facts.nearest
    ]
    return schemas.PrototypeItem(
        prototype=facts.prototype,
        label=facts.label,
        class_name=facts.class_name,
        **_origin(service, facts.prototype),
        weight=facts.weight,
        purity=facts.purity,
        among=facts.among,
        fires=facts.fires,
        duplicates=list(facts.duplicates),
        nearest=near,
    )


def _origin(service: Service, prototype: int) -> dict[str, Any]:
    """Where a prototype is from, and what its part is called."""
    record, name = service.model.prototypes[prototype], service.model.part_names.get(prototype)
    return {
        "source": record.source,
        "sources": list(record.sources),
        "part": "" if name is None else name.words,
        "placed": record.place is not None,
    }


def _plain_items(service: Service, numbers: Sequence[int]) -> list[schemas.PrototypeItem]:
    classes, weight = service.model.classes, service.model.network.head.weight.detach().cpu()
    return [
        schemas.PrototypeItem(
            prototype=record.prototype,
            label=classes.index(record.class_name),
            class_name=record.class_name,
            **_origin(service, record.prototype),
            weight=float(weight[classes.index(record.class_name), record.prototype]),
        )
        for record in map(service.model.prototypes.__getitem__, numbers)
    ]
