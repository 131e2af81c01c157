"""The OpenAPI schema is true: requests made up from it get only answers that it names."""

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from dprotonet.web.service import Service
from web_server import served

FEW = settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # shrinking an example takes minutes
)
NO_SUCH_THING = [positive_data_acceptance]  # any bytes are a file to the schema, and few of them an image


def test_answers_are_as_the_schema_says(service: Service) -> None:
    """Schemathesis' own checks, of status, type and content, on every route."""
    asked = set()
    with served(service) as address:
        for found in schemathesis.openapi.from_url(f"{address}/api").get_all_operations():
            operation = found.ok()

            @FEW
            @given(case=operation.as_strategy())
            def check(case: schemathesis.Case) -> None:
                case.call_and_validate(excluded_checks=NO_SUCH_THING)

            check()
            asked.add(operation.label)
    assert {"POST /api/images", "GET /api/jobs/{job}/events", "POST /api/what-if"} <= asked
    assert len(asked) > 15
