"""The run itself over HTTP: what it is, its prototypes, and what if some were switched off."""

import asyncio

from fastapi import APIRouter
from fastapi.responses import Response

from dprotonet import __version__
from dprotonet.figures import HEAT
from dprotonet.web import schemas
from dprotonet.web.routes import PNG, REFUSALS, Number, Served, picture_response

router = APIRouter(prefix="/api", responses=REFUSALS)


@router.get("/run")
async def run(service: Served) -> schemas.RunFacts:
    """What is served."""
    limits = service.settings.limits
    return schemas.RunFacts(
        name=service.name,
        classes=list(service.model.classes),
        prototypes=len(service.model.prototypes),
        image_size=service.model.config.data.image_size,
        methods=list(service.methods),
        heat=list(HEAT),
        limits=schemas.LimitFacts(megabytes=limits.megabytes, megapixels=limits.megapixels),
        version=__version__,
    )


@router.get("/prototypes/{prototype}/picture", response_class=Response, responses=picture_response(PNG))
async def prototype_picture(prototype: Number, service: Served) -> Response:
    """The training image that a prototype was taken from."""
    data = await asyncio.wrap_future(service.source_picture(prototype))
    return Response(data, media_type=PNG, headers={"Cache-Control": "private, max-age=3600"})
