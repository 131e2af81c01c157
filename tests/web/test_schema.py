"""The OpenAPI schema is true: requests made up from it get only answers that it names."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from web_server import served

from dprotonet.web.service import Service

FEW = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@pytest.fixture(scope="module")
def api(service: Service) -> Iterator[object]:
    with served(service) as address:
        yield schemathesis.openapi.from_url(f"{address}/api")


schema = schemathesis.pytest.from_fixture("api")


@schema.parametrize()
@FEW
def test_answers_are_as_the_schema_says(case: schemathesis.Case) -> None:
    case.call_and_validate()
