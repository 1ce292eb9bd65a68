"""The API by its OpenAPI document: a client that knows nothing else, and what it is answered."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker

from controller import api as api_module
from controller.api import OPENAPI
from controller.control_plane import ControlPlane
from controller.rate_limit import TokenBucket
from controller.values import NetworkSwitches, to_json
from tests.unit.controller.test_api import (
    DATACENTRE,
    TOKEN,
    Service,
    a_tenant,
    serving,
)

# https://spec.openapis.org/oas/3.1/schema/2022-10-07, as published.
SCHEMA = Path(__file__).parents[2] / "support" / "openapi-3.1-schema.json"
METHODS = ("get", "put", "post", "delete")


@dataclass(frozen=True)
class Operation:
    """One method of one path, as the document has it."""

    method: str
    path: str
    spec: Any

    @property
    def parameters(self) -> list[Any]:
        return [resolved(each) for each in self.spec.get("parameters", ())]

    @property
    def body(self) -> Any:
        """The schema of the request's body, None without one."""
        asked = self.spec.get("requestBody")
        return (
            None
            if asked is None
            else asked["content"]["application/json"]["schema"]
        )


@dataclass(frozen=True)
class Response:
    status: int
    headers: http.client.HTTPMessage
    text: bytes


def resolved(spec: Any) -> Any:
    """The target of a reference into the document."""
    while "$ref" in spec:
        found: Any = OPENAPI
        for part in spec["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        spec = found
    return spec


OPERATIONS = [
    Operation(method, path, spec)
    for path, item in OPENAPI["paths"].items()
    for method, spec in item.items()
]


def named(operation: Operation) -> str:
    return str(operation.spec["operationId"])


BY_NAME = {named(each): each for each in OPERATIONS}


@cache
def _validator(schema: str) -> Draft202012Validator:
    whole = {**json.loads(schema), "components": OPENAPI["components"]}
    return Draft202012Validator(whole, format_checker=FormatChecker())


def errors(schema: Any, value: Any) -> list[str]:
    return [
        each.message
        for each in _validator(json.dumps(schema)).iter_errors(value)
    ]


# ------------------------------------------------------------------------------ the document


def test_it_is_an_openapi_document() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert [
        each.message
        for each in Draft202012Validator(schema).iter_errors(OPENAPI)
    ] == []


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def test_its_references_and_schemas_are_sound() -> None:
    for reference in _references(OPENAPI):
        resolved({"$ref": reference})
    for schema in OPENAPI["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    names = [*map(named, OPERATIONS)]
    assert len(set(names)) == len(names)
    for operation in OPERATIONS:
        in_path = {
            each["name"]
            for each in operation.parameters
            if each["in"] == "path"
        }
        assert in_path == {
            p[1:-1] for p in operation.path.split("/") if p.startswith("{")
        }


def test_it_has_every_path_and_method_that_is_served() -> None:
    served = set()
    for pattern, verbs in api_module._ROUTES:
        (path,) = [
            path
            for path in OPENAPI["paths"]
            if pattern.fullmatch(path.replace("{id}", "1"))
        ]
        served |= {(path, verb.lower()) for verb in verbs}
    assert served == {(each.path, each.method) for each in OPERATIONS}


def test_it_is_served_without_a_token() -> None:
    with serving() as service:
        assert service.ask("GET", "/openapi.json", token=None) == (
            200,
            OPENAPI,
        )


# ---------------------------------------------------------------------------------- the client


def send(
    service: Service,
    method: str,
    target: str,
    body: bytes = b"",
    token: str | None = TOKEN,
) -> Response:
    connection = http.client.HTTPConnection(
        "127.0.0.1", service.port, timeout=60
    )
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    connection.request(method.upper(), target, body, headers)
    response = connection.getresponse()
    answer = Response(response.status, response.headers, response.read())
    connection.close()
    return answer


def check(operation: Operation, response: Response) -> None:
    """The status is documented, the headers are there, the body is as its schema says."""
    assert str(response.status) in operation.spec["responses"], response
    spec = resolved(operation.spec["responses"][str(response.status)])
    assert response.headers["Content-Type"] == "application/json"
    for name, header in spec.get("headers", {}).items():
        given = response.headers[name]
        assert given is not None, name
        kind = header["schema"].get("type")
        assert (
            errors(
                header["schema"], int(given) if kind == "integer" else given
            )
            == []
        )
    assert (
        errors(
            spec["content"]["application/json"]["schema"],
            json.loads(response.text),
        )
        == []
    )


def values(schema: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one for each kind
    """Values that a schema of the document allows."""
    schema = resolved(schema)
    if "anyOf" in schema:
        return st.one_of(*map(values, schema["anyOf"]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if kind == "integer":
        low, high = schema.get("minimum", 0), schema.get("maximum", 99)
        # Small numbers are those of a network that is there.
        return st.integers(low, high) | st.integers(low, min(high, 12))
    if kind == "number":
        return st.floats(
            schema["minimum"], min(schema["maximum"], 0.002)
        )  # a time to wait
    if kind == "string":
        if "pattern" in schema:
            return st.from_regex(schema["pattern"], fullmatch=True)
        if schema.get("format") == "ipv4":
            return st.ip_addresses(v=4).map(str)
        return st.text(
            min_size=schema.get("minLength", 0),
            max_size=schema.get("maxLength", 200),
        )
    if kind == "array":
        return st.lists(
            values(schema["items"]),
            min_size=schema.get("minItems", 0),
            max_size=4,
        )
    if kind == "null":
        return st.none()
    required = {
        name: values(schema["properties"][name])
        for name in schema["required"]
    }
    optional = {
        n: values(s)
        for n, s in schema["properties"].items()
        if n not in required
    }
    return st.fixed_dictionaries(required, optional=optional)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=6,
)
REAL = [
    to_json(NetworkSwitches(DATACENTRE.switches)),
    to_json(a_tenant()),
    to_json(a_tenant(4, 4)),
]


@st.composite
def broken(draw: st.DrawFn, schema: Any) -> Any:
    """A value of the schema but for one thing: a key, a type, a bound, here or further inside."""
    schema = resolved(schema)
    kind = schema.get("type")
    if kind == "array":
        return [*draw(values(schema)), draw(broken(schema["items"]))]
    if kind in ("integer", "number"):
        bounds = (
            [schema["minimum"] - 1, schema["maximum"] + 1]
            if "minimum" in schema
            else []
        )
        return draw(st.sampled_from([*bounds, "1", None]))
    if kind != "object":
        return draw(ANYTHING)
    value = draw(values(schema))
    key = draw(st.sampled_from(sorted(schema["properties"])))
    change = draw(
        st.sampled_from(["drop", "add", "replace", "inside", "inside"])
    )
    if change == "drop":
        value.pop(key, None)
    elif change == "inside":
        value[key] = draw(broken(schema["properties"][key]))
    else:
        value[key if change == "replace" else draw(st.text())] = draw(
            ANYTHING
        )
    return value


def bodies(operation: Operation) -> st.SearchStrategy[bytes]:
    if operation.body is None:
        return st.just(b"") | st.binary(max_size=20)
    by_schema = (
        values(operation.body) | broken(operation.body) | ANYTHING
    ).map(lambda value: json.dumps(value).encode())
    return by_schema | st.sampled_from(REAL) | st.binary(max_size=50)


@st.composite
def targets(draw: st.DrawFn, operation: Operation) -> str:
    """The path and the query, each parameter by its schema or of any text."""
    path, query = operation.path, {}
    for parameter in operation.parameters:
        text = draw(values(parameter["schema"]).map(json.dumps) | st.text())
        if parameter["in"] == "path":
            path = path.replace(
                f"{{{parameter['name']}}}", quote(text, safe="") or "x"
            )
        else:
            query[parameter["name"]] = text
    query |= draw(
        st.just({})
        | st.just({})
        | st.dictionaries(st.text(), st.text(), max_size=1)
    )
    return f"{path}?{urlencode(query)}" if query else path


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """One for all requests of the client, with the switches of a network; nobody waits long."""
    with (
        pytest.MonkeyPatch.context() as patch,
        serving(TokenBucket(1e9, 10**6)) as running,
    ):
        patch.setattr(api_module, "CONFIRM_TIMEOUT_S", 0.002)
        running.connect_all()
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=named)
@given(data=st.data())
def test_whatever_is_sent_the_answer_is_as_documented(
    service: Service, operation: Operation, data: st.DataObject
) -> None:
    target = data.draw(targets(operation), label="target")
    body = data.draw(bodies(operation), label="body")
    token = data.draw(
        st.sampled_from([TOKEN, TOKEN, TOKEN, None]), label="token"
    )
    if operation is BY_NAME["wait"] and b"timeout_s" not in body:
        body = b'{"timeout_s": 0}'
    response = send(service, operation.method, target, body, token)
    if response.status == 404 and "{" in operation.path:
        # A parameter that is no number makes another path, which no operation is for.
        assert (
            errors(
                {"$ref": "#/components/schemas/Error"},
                json.loads(response.text),
            )
            == []
        )
    elif response.status == 401 and token is None:
        check(BY_NAME["state"], response)
    elif response.status != 429 or token is not None:
        check(operation, response)


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=named)
@given(data=st.data())
def test_what_the_schema_refuses_is_refused(
    service: Service, operation: Operation, data: st.DataObject
) -> None:
    if operation.body is None:
        return
    value = data.draw(broken(operation.body) | ANYTHING)
    if not errors(operation.body, value):
        return
    path = operation.path.replace("{id}", "3")
    target = path + ("?timeout_s=0" if operation.parameters else "")
    response = send(
        service, operation.method, target, json.dumps(value).encode()
    )
    assert response.status == 400, value
    check(operation, response)


def numbers(
    schema: Any, value: Any
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Places of numbers in a value, with their schemas; of a list, in its first item."""
    schema = resolved(schema)
    if isinstance(value, list):
        items = (
            schema["anyOf"][0]["items"]
            if "anyOf" in schema
            else schema["items"]
        )
        yield from (
            ((0, *path), bound) for path, bound in numbers(items, value[0])
        )
    elif isinstance(value, dict):
        for key, inside in value.items():
            found = numbers(schema["properties"][key], inside)
            yield from (((key, *path), bound) for path, bound in found)
    elif "minimum" in schema:
        yield (), schema


def replaced(value: Any, path: tuple[Any, ...], number: float) -> Any:
    if not path:
        return number
    changed = replaced(value[path[0]], path[1:], number)
    if isinstance(value, dict):
        return {**value, path[0]: changed}
    return [changed, *value[1:]]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("put_network", json.loads(REAL[0])),
        ("add_tenant", json.loads(REAL[1])),
        ("wait", {"dpids": [1], "timeout_s": 0}),
    ],
)
def test_bounds_are_those_of_the_document(
    service: Service, name: str, body: Any
) -> None:
    operation = BY_NAME[name]
    target = operation.path + (
        "?timeout_s=0" if operation.parameters else ""
    )
    found = list(numbers(operation.body, body))
    assert found
    for path, schema in found:
        low, high = schema["minimum"], schema["maximum"]
        for number, good in (
            (low - 1, False),
            (low, True),
            (high, True),
            (high + 1, False),
        ):
            if path == ("timeout_s",) and number == high:
                continue  # it would wait
            sent = json.dumps(replaced(body, path, number)).encode()
            response = send(service, operation.method, target, sent)
            check(operation, response)
            assert good or response.status == 400, (path, number)
            assert (b"not within" in response.text) is not good, (
                path,
                number,
                response.text,
            )


@pytest.mark.parametrize("path", OPENAPI["paths"])
@pytest.mark.parametrize(
    "method", ["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE"]
)
def test_a_method_that_a_path_does_not_have(
    service: Service, path: str, method: str
) -> None:
    known = {verb.upper() for verb in OPENAPI["paths"][path]}
    if method in known:
        return
    response = send(service, method, path.replace("{id}", "1"))
    assert response.status == 405
    assert {
        each.strip() for each in response.headers["Allow"].split(",")
    } == known
    for verb in known:
        check(
            Operation(
                verb.lower(), path, OPENAPI["paths"][path][verb.lower()]
            ),
            response,
        )


def test_a_head_request_is_answered_without_a_body(
    service: Service,
) -> None:
    response = send(service, "HEAD", "/v1/health")
    assert (response.status, response.text) == (405, b"")


# --------------------------------------------------------------- every status, once on purpose


def test_every_documented_status_of_a_life_is_given() -> None:
    """From an empty controller to one whose switches fail; what is left is in test_rate_limit."""
    seen: set[tuple[str, int]] = set()

    def ask(
        name: str,
        status: int,
        body: bytes = b"",
        *,
        query: str = "?timeout_s=0",
    ) -> None:
        operation = BY_NAME[name]
        waits = any(
            each["name"] == "timeout_s" for each in operation.parameters
        )
        target = operation.path.replace("{id}", "3") + (
            query if waits else ""
        )
        response = send(running, operation.method, target, body)
        assert response.status == status, (name, response)
        check(operation, response)
        seen.add((name, status))

    tenant, network = (
        to_json(a_tenant()),
        to_json(NetworkSwitches(DATACENTRE.switches)),
    )
    with serving(TokenBucket(1e9, 10**6)) as running:
        for name in ("openapi", "health", "state", "flows", "reconcile"):
            ask(name, 200)
        ask("tenant", 404)
        ask("remove_tenant", 404)
        ask("add_tenant", 400, tenant)
        ask("put_network", 200, network)
        ask("wait", 504, b'{"timeout_s": 0}')
        ask("wait", 409, b'{"timeout_s": 0, "dpids": [99]}')
        ask("reconcile", 504)
        ask("move_tenant", 404, tenant)
        ask("move_tenant", 400, to_json(a_tenant(4)))
        ask("add_tenant", 504, tenant)
        ask("put_network", 409, b'{"switches": []}')
        ask("remove_tenant", 504)
        running.connect_all()
        ask("wait", 200, b"{}")
        ask("add_tenant", 201, tenant)
        ask("add_tenant", 409, to_json(a_tenant(3, 1)))
        ask("move_tenant", 200, tenant)
        ask("move_tenant", 409, to_json(a_tenant(3, 1)))
        ask("tenant", 200)
        ask("state", 200)
        ask("flows", 200)
        running.switches[1]._flows.clear()
        ask("reconcile", 200, query="?timeout_s=1.5e0")
        ask("remove_tenant", 200)
        running.switches[1].capacity = 3
        ask("add_tenant", 502, tenant)
        ask("reconcile", 400, query=f"?timeout_s={quote('٣')}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ControlPlane, "view", lambda _: 1 / 0)
            ask("state", 500)
    assert {status for _, status in seen} == {
        200,
        201,
        400,
        404,
        409,
        500,
        502,
        504,
    }
