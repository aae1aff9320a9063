"""What the description of the API says beyond what the views say by themselves."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension

from api.errors import CONTENT_TYPE

_PROBLEM = {
    "type": "object",
    "description": "An error, as in RFC 9457.",
    "required": ["type", "title", "status", "code", "detail", "errors", "facts", "request_id"],
    "properties": {
        "type": {"type": "string", "description": "`urn:rota:problem:` and the code."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "One word for programs, such as `invalid` or `team_required`."},
        "detail": {"type": "string", "description": "One line for people."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "message"],
                "properties": {
                    "path": {"type": "string", "description": "Of the wrong value, such as `groups[1].vram_gib`."},
                    "message": {"type": "string"},
                },
            },
        },
        "facts": {"type": "object", "additionalProperties": True, "description": "Names and numbers behind it."},
        "request_id": {"type": "string", "description": "As in the header X-Request-ID and in the server's log."},
    },
}
_TEXT = "An error. `code` is one word for programs, `detail` one line for people, `errors` name the wrong values."


class BearerToken(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """`Authorization: Bearer rota_…`."""

    target_class = "api.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        """As OpenAPI writes it."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "rota_<key>.<secret>"}


class BrowserSession(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The cookie of whoever is signed in."""

    target_class = "api.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        """As OpenAPI writes it."""
        return {"type": "apiKey", "in": "cookie", "name": "sessionid"}


def problems_everywhere(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Let every operation say that any error of it is a problem."""
    content = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    result["components"]["schemas"]["Problem"] = _PROBLEM
    result["components"]["responses"] = {"Problem": {"description": _TEXT, "content": content}}
    for path in result["paths"].values():
        for operation in path.values():
            if isinstance(operation, dict) and "responses" in operation:
                if any(each["name"] == "If-None-Match" for each in operation.get("parameters", ())):
                    operation["responses"]["304"] = {"description": "It still is as If-None-Match says."}
                operation["responses"]["default"] = {"$ref": "#/components/responses/Problem"}
    return result
