"""ETags of single resources: a digest of what is answered, so that it changes exactly when that does."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder

from api.errors import PreconditionFailed, PreconditionRequired

_TAG = re.compile(r'(?:W/)?("[^"]*")')


def etag_of(data: Any) -> str:
    """The ETag of plain values, with its quotes."""
    text = json.dumps(data, cls=JSONEncoder, sort_keys=True)
    return f'"{sha256(text.encode()).hexdigest()[:24]}"'


def answer(request: Request, data: Mapping[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None,
) -> Response:  # fmt: skip
    """The resource with its ETag; 304 without a body where the caller has just that."""
    etag = etag_of(data)
    said = {"ETag": etag, "Cache-Control": "private, no-cache", **(headers or {})}
    given = request.headers.get("If-None-Match", "")
    if request.method in ("GET", "HEAD") and given and (given.strip() == "*" or etag in _TAG.findall(given)):
        return Response(status=304, headers=said)
    return Response(data, status=status, headers=said)


def require_match(request: Request, data: Mapping[str, Any], *, must: bool = False) -> None:
    """Refuse to change what is not in the state that If-Match names; ``must``: it has to name one.

    The caller holds a lock, so that what is compared is what will be changed.
    """
    given = request.headers.get("If-Match", "")
    if not given:
        if must:
            raise PreconditionRequired
        return
    if given.strip() != "*" and etag_of(data) not in _TAG.findall(given):
        raise PreconditionFailed
