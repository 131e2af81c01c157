"""Two classes side by side, in the words of the API, with the nearest training image of each."""

from dprotonet.experiment.trained.class_contrast import ContrastRow
from dprotonet.web import schemas
from dprotonet.web.service import Service


def comparing(service: Service, key: str, wanted: schemas.Comparing) -> schemas.Compared:
    """Where they differ, what is against the class first, and where they agree."""
    seen = service.image(key)
    label, versus = service.pair(seen, wanted.label, wanted.versus)
    found = seen.answer.contrast(label, versus, service.prototypes(wanted.off))
    shown, folded = found.shown(wanted.top), found.folded(wanted.top)
    training = service.reviewing.training.ask() if len(seen.answer.scores) else None
    names = {number: service.model.classes[number] for number in (label, versus)}
    near = {
        number: index
        for number in names
        if training is not None and (index := training.nearest(seen.answer.scores, number)) is not None
    }
    return schemas.Compared(
        label=label,
        class_name=found.class_name,
        versus=versus,
        versus_name=found.versus,
        score=found.logit,
        versus_score=found.versus_logit,
        sentence=found.sentence,
        differing=[_row(row) for row in shown],
        others=folded.count,
        others_for=folded.ahead,
        others_against=folded.behind,
        agreeing=[_row(row) for row in found.agreeing if row not in shown],
        nearest=[
            schemas.NearestImage(
                label=number,
                class_name=names[number],
                index=index,
                name=service.samples.data().train.name(index),
            )
            for number, index in near.items()
        ],
        nearest_state=service.reviewing.training.state,
    )


def _row(row: ContrastRow) -> schemas.ComparedRow:
    return schemas.ComparedRow(
        name=row.name,
        points=row.points,
        versus_points=row.other_points,
        difference=row.difference,
        prototypes=list(row.prototypes),
    )
