"""Images, evidence, explanations and the run's own data over HTTP: words in, words out, nothing computed."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import Future
from typing import Annotated, Any

from fastapi import APIRouter, Depends, File, Path, Query, Request, UploadFile
from fastapi.responses import Response, StreamingResponse

from dprotonet.web import schemas
from dprotonet.web.comparing import comparing
from dprotonet.web.image_record import ImageRecord
from dprotonet.web.job import Job
from dprotonet.web.reading import job_facts, mark_facts, reading
from dprotonet.web.service import NotFound, Service
from dprotonet.web.store import new_id

PAUSE = 0.05  # seconds between news: more than 20 a second nobody sees
HEARTBEAT = 1.0  # seconds between looks whether the watcher is still there
PNG, NPY = "image/png", "application/x-npy"
Key = Annotated[str, Path(max_length=40)]
Number = Annotated[int, Path(ge=0, le=2**31 - 1)]
Which = Annotated[int, Query(ge=0, le=1, description="which of the runs that are served, 0 or 1")]
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem, "description": words}
    for status, words in {
        400: "what was sent cannot be used",
        401: "a token is needed",
        403: "requests from other pages are refused",
        404: "not known, or no longer",
        409: "not yet: ask for it, and wait for the job; or not now, since another is at it",
        413: "too large",
        421: "the server does not answer to that name",
        503: "busy; try again in a moment",
    }.items()
}
router = APIRouter(prefix="/api", responses=REFUSALS)


def service_of(request: Request, model: Which = 0) -> Service:
    services: tuple[Service, ...] = request.app.state.service.together
    if model >= len(services):
        raise NotFound("there is one run only; dprotonet serve RUN_A RUN_B serves two")
    return services[model]


def _seen(key: Key, service: Annotated[Service, Depends(service_of)]) -> ImageRecord:
    return service.image(key)


Served = Annotated[Service, Depends(service_of)]
Image = Annotated[ImageRecord, Depends(_seen)]


def picture_response(kind: str) -> dict[int | str, dict[str, Any]]:
    """How OpenAPI says that an answer is a file."""
    return {200: {"content": {kind: {"schema": {"type": "string", "format": "binary"}}}}}


# ── images ──


@router.post("/images", status_code=201)
async def look(file: Annotated[UploadFile, File()], service: Served) -> schemas.Reading:
    """Look at an image: class, probabilities, evidence. Where two runs are served, both look at it."""
    data = await file.read(service.settings.limits.bytes + 1)
    key, name = new_id(), _tidy(file.filename)
    await _all(one.look(data, name, key) for one in service.together)
    return await _answered(service, key, schemas.Question())


@router.post("/samples/{index}", status_code=201)
async def look_at_sample(index: Number, service: Served) -> schemas.Reading:
    """Look at an image of the test data."""
    key = new_id()
    own = service.look_at_sample("test", index, key)
    await _all([own, *(one.look_at_theirs(service, index, key) for one in service.beside)])
    return await _answered(service, key, schemas.Question())


@router.post("/images/{key}/evidence")
async def evidence(key: Key, question: schemas.Question, service: Served) -> schemas.Reading:
    """Why this class, or why not that one; also with prototypes switched off."""
    return await _answered(service, key, question)


@router.post("/images/{key}/contrast")
async def contrast(key: Key, wanted: schemas.Comparing, service: Served) -> schemas.Compared:
    """Why one class and not another: both side by side, and the nearest training image of each."""
    task = service.answering.submit(lambda: comparing(service, key, wanted))
    return await asyncio.wrap_future(task)


async def _answered(service: Service, key: str, question: schemas.Question) -> schemas.Reading:
    return await asyncio.wrap_future(service.answering.submit(lambda: reading(service, key, question)))


async def _all(looks: "Iterable[Future[str]]") -> None:
    await asyncio.gather(*map(asyncio.wrap_future, looks))


@router.get("/images/{key}/picture", response_class=Response, responses=picture_response(PNG))
async def picture(seen: Image) -> Response:
    """The image, encoded anew."""
    return Response(seen.picture, media_type=PNG)


@router.get("/images/{key}/sheet", response_class=Response, responses=picture_response(PNG))
async def sheet(
    seen: Image,
    service: Served,
    label: Annotated[int, Query(ge=0, le=2**31 - 1)],
    top: Annotated[int, Query(ge=1, le=10)] = 3,
    off: Annotated[list[int] | None, Query(max_length=schemas.MOST_NUMBERS)] = None,
) -> Response:
    """The explanation of a class as one picture, once the places of its `top` prototypes are known."""
    drawn = await asyncio.wrap_future(service.sheet(seen, label, top, off or []))
    return Response(drawn, media_type=PNG)


# ── explanations ──


@router.post("/images/{key}/places", status_code=202)
async def places(seen: Image, wanted: schemas.PlacesWanted, service: Served) -> schemas.JobFacts:
    """Find where the image looks like these prototypes, and where they lie in their sources."""
    return job_facts(service.explain_places(seen, wanted.prototypes))


@router.post("/images/{key}/maps", status_code=202)
async def maps(seen: Image, wanted: schemas.MapWanted, service: Served) -> schemas.JobFacts:
    """Find where a class is seen, by one of the methods."""
    return job_facts(service.explain_class(seen, wanted.label, wanted.method, wanted.versus))


@router.get(
    "/images/{key}/places/{prototype}/{where}", response_class=Response, responses=picture_response(NPY)
)
async def place_map(
    seen: Image, service: Served, prototype: Number, where: Annotated[str, Path(pattern="^(image|source)$")]
) -> Response:
    """The raw map of a prototype, in the image or in its source: .npy, float32."""
    place = service.place(seen, prototype)
    return Response((place.image if where == "image" else place.source).npy(), media_type=NPY)


@router.get("/images/{key}/maps/{label}/{method}", response_class=Response, responses=picture_response(NPY))
async def class_map(
    seen: Image,
    service: Served,
    label: Number,
    method: Annotated[str, Path(max_length=40)],
    versus: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
) -> Response:
    """The raw map of a class by a method, or of what is ahead of `versus`: .npy, float32."""
    return Response(service.class_map(seen, label, method, versus).npy(), media_type=NPY)


@router.get("/images/{key}/places/{prototype}")
async def place_facts(seen: Image, service: Served, prototype: Number) -> dict[str, Any]:
    """How the map of a prototype was made (settings, passes, loss, box), and what the row is worth."""
    place, mark = service.place(seen, prototype), seen.marks.find(str(prototype))
    return {
        "prototype": prototype,
        "image": place.image.facts,
        "source": place.source.facts,
        "mark": None if mark is None else mark_facts(mark).model_dump(),
    }


# ── jobs ──


@router.get("/jobs/{job}")
async def job_state(job: Key, service: Served) -> schemas.JobFacts:
    """How far slow work is."""
    return job_facts(service.job(job))


@router.delete("/jobs/{job}")
async def cancel(job: Key, service: Served) -> schemas.JobFacts:
    """End slow work; it stops before the next pass through the network."""
    found = service.job(job)
    found.cancel()
    return job_facts(found)


@router.get(
    "/jobs/{job}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def events(job: Key, request: Request, service: Served) -> StreamingResponse:
    """The work as it goes, as server-sent events; when nobody listens any more, it is cancelled."""
    found = service.job(job)
    return StreamingResponse(_told(found, request), media_type="text/event-stream")


async def _told(job: Job, request: Request) -> AsyncIterator[str]:
    job.join()
    seen = -1
    try:
        while True:
            version, ended = job.version, job.ended
            if version > seen:
                content = {**job_facts(job).model_dump(), "maps": job.since(seen)}
                yield f"data: {json.dumps(content)}\n\n"
                seen = version
                await asyncio.sleep(PAUSE)
            if ended or await request.is_disconnected():
                return
            if not await job.changed(seen, seconds=HEARTBEAT):
                yield ": still there\n\n"
    finally:
        job.leave()


# ── the run's own data ──


@router.get("/samples")
async def samples(
    service: Served,
    label: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    offset: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
    limit: Annotated[int, Query(ge=1, le=60)] = 12,
) -> schemas.SampleList:
    """Test images to try, where the run's data is still there."""
    if not service.samples.known or service.samples.reason is not None:
        known, reason = service.samples.known, service.samples.reason
        return schemas.SampleList(total=0, samples=[], ready=known, reason=reason)
    total, found = service.samples.listed(label, offset, limit)
    items = [schemas.SampleItem(index=one.index, name=one.name, label=one.label) for one in found]
    return schemas.SampleList(total=total, samples=items, ready=True, reason=None)


@router.get("/samples/{index}/picture", response_class=Response, responses=picture_response(PNG))
async def sample_picture(index: Number, service: Served) -> Response:
    """A test image, small."""
    return _lasting(await asyncio.wrap_future(service.samples.thumbnail("test", index)))


@router.get("/training/{index}/picture", response_class=Response, responses=picture_response(PNG))
async def training_picture(index: Number, service: Served) -> Response:
    """A training image, small."""
    return _lasting(await asyncio.wrap_future(service.samples.thumbnail("train", index)))


def _lasting(data: bytes) -> Response:
    return Response(data, media_type=PNG, headers={"Cache-Control": "private, max-age=3600"})


def _tidy(name: str | None) -> str:
    """A file name to show, never to open: without folders and without control characters."""
    last = (name or "").replace("\\", "/").rpartition("/")[2]
    return "".join(letter for letter in last if letter.isprintable())[:80]
