"""Requests made from the OpenAPI document itself: no server error, and every answer as documented.

`TRISKELE_API_EXAMPLES=200` tries more of each operation.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case

from triskele import config
from triskele.edge.http import openapi
from triskele.edge.http.app import AppContext, Application, ListenerRules
from triskele.edge.http.dispatch import OPERATIONS
from triskele.engine.local import LocalEngine
from triskele.types import LinkKind

pytestmark = pytest.mark.slow

TOKEN = "a-token-of-the-test"
EXAMPLES = int(os.environ.get("TRISKELE_API_EXAMPLES", "8"))
CHECKS = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
    schemathesis.checks.negative_data_rejection,
]
schema = schemathesis.openapi.from_dict(openapi.document(OPERATIONS))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The application over one store, and the ids of some memories in it."""
    home = tmp_path_factory.mktemp("fuzz")
    environment = {"TRISKELE_HOME": str(home), "TRISKELE_RECALL_MODEL": "none", "TRISKELE_PRIVACY_KEY": "file"}
    with LocalEngine(config.load(environment), Path(home.anchor)) as engine:
        ids = [engine.remember(text).id for text in ("Argo CD deploys the shop", "The plant drinks on Mondays")]
        engine.link(ids[0], LinkKind.SEE_ALSO, ids[1])
        app = Application(AppContext(lambda: engine, dict, print, lambda: None, lambda _: None))
        yield app.for_listener(ListenerRules.local(TOKEN)), ids


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_no_request_fails_the_server(case: Case, served: Any) -> None:
    app, ids = served
    is_valid = case.meta is not None and case.meta.generation.mode.is_positive
    # A known id lets the request reach the engine; erasing it would leave nothing for the next one.
    if is_valid and "id" in case.path_parameters and case.method != "DELETE":
        case.path_parameters["id"] = ids[0]
    case.operation.app = app
    case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}", "Host": "localhost"}, checks=CHECKS)
