"""The one shape of everything that goes wrong below `/api/`: a problem as in RFC 9457, with a `code` for programs.

{"type": "urn:rota:problem:invalid", "title": "Bad Request", "status": 400, "code": "invalid",
 "detail": "gpus: must be at least 1", "errors": [{"path": "gpus", "message": "must be at least 1"}],
 "facts": {}, "request_id": "…"}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from rest_framework import exceptions
from rest_framework.response import Response

from teams import problems

CONTENT_TYPE = "application/problem+json"
TYPE = "urn:rota:problem:"
_STATUS: Mapping[type[problems.Problem], int] = {
    problems.Invalid: 400,
    problems.Forbidden: 403,
    problems.NotFound: 404,
    problems.Conflict: 409,
}
CODES: Mapping[int, str] = {
    400: "bad_request",
    401: "not_authenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    412: "precondition_failed",
    413: "too_large",
    415: "unsupported_media_type",
    428: "precondition_required",
    429: "throttled",
    500: "internal_error",
    503: "unavailable",
}
"""The code of a status where nothing more is known."""


class FieldError(NamedTuple):
    """What is wrong with one value; ``path`` such as ``groups[1].vram_gib``, empty for the whole."""

    path: str
    message: str


class PreconditionFailed(exceptions.APIException):
    """The resource is not what the caller thinks it is."""

    status_code = 412
    default_detail = "it has changed since: read it again, then send If-Match with its new ETag"
    default_code = "precondition_failed"


class PreconditionRequired(exceptions.APIException):
    """The caller must say which state it wants to change."""

    status_code = 428
    default_detail = "send If-Match with the ETag of the state that you want to change"
    default_code = "precondition_required"


class TooLarge(exceptions.APIException):
    """The body is larger than anything that makes sense here."""

    status_code = 413
    default_detail = "the body is too large"
    default_code = "too_large"


class Unavailable(exceptions.APIException):
    """A store, or the cluster, does not answer now."""

    status_code = 503
    default_detail = "a service that this needs does not answer now, try again"
    default_code = "unavailable"


def body(
    status: int, code: str, detail: str, request_id: str, *, errors: Sequence[FieldError] = (),
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A problem as plain values."""
    return {
        "type": f"{TYPE}{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        "errors": [error._asdict() for error in errors],
        "facts": dict(facts or {}),
        "request_id": request_id,
    }


def plain_problem(request: HttpRequest, status: int, detail: str = "") -> HttpResponse:
    """A problem for an answer that came from outside the API's views."""
    detail = detail or HTTPStatus(status).description or HTTPStatus(status).phrase
    code = CODES.get(status, "error")
    return JsonResponse(body(status, code, detail, request_id(request)), status=status, content_type=CONTENT_TYPE)


def request_id(request: HttpRequest) -> str:
    """The id that `rota.middleware` gave to a request."""
    return str(request.META.get("ROTA_REQUEST_ID", ""))


def handle(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """DRF's exception handler; None lets an unknown error become a 500, which the middleware gives this shape."""
    found = _read(error)
    if found is None:
        return None
    status, code, detail, errors, facts = found
    plain = body(status, code, detail, request_id(context["request"]), errors=errors, facts=facts)
    return Response(plain, status=status, headers=_headers(error), content_type=CONTENT_TYPE)


def _read(error: Exception) -> tuple[int, str, str, Sequence[FieldError], Mapping[str, Any]] | None:
    match error:
        case problems.Problem():
            return _of_service(error)
        case exceptions.ValidationError():
            errors = list(_flat(error.detail))
            detail = "; ".join(f"{each.path}: {each.message}" if each.path else each.message for each in errors)
            return 400, "invalid", detail, errors, {}
        case exceptions.APIException():
            return error.status_code, _code(error), _one_line(error.detail), (), {}
        case Http404() | DjangoPermissionDenied():
            status = 404 if isinstance(error, Http404) else 403
            return status, CODES[status], str(error) or HTTPStatus(status).description, (), {}
        case OperationalError() | InterfaceError():
            return 503, "unavailable", "the database does not answer now, try again", (), {}
        case _:
            return None


def _of_service(error: problems.Problem) -> tuple[int, str, str, Sequence[FieldError], Mapping[str, Any]]:
    facts = dict(error.facts)
    field = facts.pop("field", None)
    errors = () if field is None else (FieldError(field, error.message.removeprefix(f"{field}: ")),)
    status = next(status for kind, status in _STATUS.items() if isinstance(error, kind))
    return status, error.code, error.message, errors, facts


def _code(error: exceptions.APIException) -> str:
    if isinstance(error, exceptions.PermissionDenied) and str(error.detail).startswith("CSRF"):
        return "csrf_failed"
    codes = error.get_codes()
    known = {"permission_denied": "forbidden", "authentication_failed": "token_invalid", "parse_error": "malformed"}
    return known.get(codes, codes) if isinstance(codes, str) else CODES.get(error.status_code, "error")


def _headers(error: Exception) -> dict[str, str]:
    headers = {}
    if header := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = header
    if (wait := getattr(error, "wait", None)) is not None:
        headers["Retry-After"] = str(int(wait))
    if isinstance(error, Unavailable | OperationalError | InterfaceError):
        headers["Retry-After"] = "2"
    return headers


def _one_line(detail: Any) -> str:
    return " ".join(str(detail).split())


def _flat(detail: Any, path: str = "") -> Iterator[FieldError]:
    """Every message in what a serializer found wrong, with the path of its value."""
    if isinstance(detail, Mapping):
        for key, value in detail.items():
            yield from _flat(value, path if key == "non_field_errors" else f"{path}.{key}" if path else str(key))
    elif isinstance(detail, list):
        for position, value in enumerate(detail):
            nested = isinstance(value, Mapping | list)
            yield from _flat(value, f"{path}[{position}]" if nested else path)
    else:
        yield FieldError(path, _one_line(detail))
