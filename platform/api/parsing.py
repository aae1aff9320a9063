"""Reading bodies: JSON of a sensible size that a database can hold, and the header that makes a POST repeatable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import IO, Any

from rest_framework import exceptions
from rest_framework.parsers import JSONParser
from rest_framework.request import Request

from api.errors import TooLarge
from teams.problems import Invalid

BODY_MOST = 1 << 20
KEY_MOST = 255


class StrictJSONParser(JSONParser):
    """JSON of at most 1 MiB, without NaN, without NUL and halves of characters, and not nested without end."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """The values. Raises ParseError, TooLarge."""
        raw = stream.read(BODY_MOST + 1)
        if len(raw) > BODY_MOST:
            raise TooLarge(f"the body is larger than {BODY_MOST} bytes")
        try:
            parsed = super().parse(BytesIO(raw), media_type, parser_context)
            text = json.dumps(parsed, ensure_ascii=False)
            text.encode()
        except RecursionError:
            raise exceptions.ParseError("JSON that is nested too deeply") from None
        except UnicodeEncodeError:
            raise exceptions.ParseError("JSON with a half of a character (a lone surrogate)") from None
        if "\\u0000" in text.replace("\\\\", ""):  # but not where the text itself says so
            raise exceptions.ParseError("JSON with a NUL character")
        return parsed


def body_of(request: Request) -> dict[str, Any]:
    """The body, which has to be a JSON object; without any body an empty one."""
    data: Any = request.data
    if not isinstance(data, dict):
        raise Invalid("invalid", "the body must be a JSON object")
    return dict(data)


def idempotency_key(request: Request) -> str | None:
    """The header Idempotency-Key: 1 to 255 printable ASCII characters. Raises Invalid."""
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    key = key.strip()
    if not 0 < len(key) <= KEY_MOST or not key.isascii() or not key.isprintable():
        said = f"Idempotency-Key: must be 1 to {KEY_MOST} printable ASCII characters"
        raise Invalid("idempotency_key_invalid", said, field="Idempotency-Key")
    return key
