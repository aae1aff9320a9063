"""The API does what its description says: it names every key of a job, and random requests agree with it."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, given, settings, strategies
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api import job_body
from jobs.spec import GROUP_FIELDS, JOB_FIELDS, parse_job
from rota.env import ROOT
from tests.api.asking import asker, fresh_world
from tests.api.serving import serving
from tests.services import Services

DESCRIPTION = ROOT / "docs" / "reference" / "openapi.yaml"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 8


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(DESCRIPTION.read_text())
    return found


def test_each_key_of_a_job_is_described() -> None:
    assert set(job_body.JOB) == {*JOB_FIELDS, "cluster"}
    assert set(job_body.GROUP) == set(GROUP_FIELDS)
    assert parse_job(dict(job_body.EXAMPLE)).name == "hello"


def test_each_operation_says_who_may_and_what_an_error_is(description: dict[str, Any]) -> None:
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            said = f"{method} {path}"
            assert operation["responses"]["default"] == {"$ref": "#/components/responses/Problem"}, said
            assert operation.get("summary"), said
            assert operation.get("description"), said
            public = path in ("/api/v1/version/", "/api/v1/health/")
            assert public != ({"token": []} in operation.get("security", [])), said


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.django_db(transaction=True)
def test_random_requests_get_what_is_described(services: Services, description: dict[str, Any], settings: Any) -> None:
    settings.ROTA_API_RATES = dict.fromkeys(settings.ROTA_API_RATES, 1_000_000)
    world = fresh_world()
    root = asker(world.admin)
    job = root.post("/jobs/", {"name": "j", "team": world.team.slug}, status=201)["key"]
    real = {"cluster": world.cluster.slug, "name": "n1", "key": job, "team": world.team.slug, "slug": world.team.slug,
            "username": world.ann.username}  # fmt: skip
    schema = schemathesis.openapi.from_dict(description)
    wrong = []
    with serving() as url:
        for result in schema.get_all_operations():
            assert isinstance(result, Ok)
            operation = result.ok()
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                try:
                    _try(operation, mode, url, {"Authorization": f"Bearer {root.token}"}, real)
                except Unsatisfiable:
                    assert mode is GenerationMode.NEGATIVE, operation.label  # what asks for nothing cannot be wrong
                except FailureGroup as group:
                    wrong += [f"{operation.label}: {failure.message}" for failure in group.exceptions]
    assert not wrong, "\n".join(wrong)


def _try(operation: Any, mode: GenerationMode, url: str, headers: dict[str, str], real: dict[str, str]) -> None:
    """Ask for one operation again and again, with names that there are and with any."""

    @settings(
        max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode), known=strategies.booleans())
    def run(case: Case[Any], known: bool) -> None:
        if known and not (case.method == "DELETE" and "/tokens/" in case.path):
            case.path_parameters = {name: real[name] for name in case.path_parameters or {}}
        case.call_and_validate(base_url=url, headers=headers, checks=CHECKS)

    run()
