"""Rate limits, counted in the cache by whole minutes. Without a cache nobody is kept out: jobs matter more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import redis
import structlog
from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from teams.models import User

if TYPE_CHECKING:  # at run time it would be a circle: that module reads the settings, which name this one
    from rest_framework.views import APIView

log = structlog.get_logger(__name__)
MINUTE = 60


def count(what: str, who: str) -> int:
    """Count one more of ``what`` by ``who`` in this minute and return how many there are; 0 while there is no cache."""
    key = _key(what, who)
    try:
        cache.add(key, 0, timeout=2 * MINUTE)
        return int(cache.incr(key))
    except ValueError:  # it was thrown away in between
        return 1
    except (redis.RedisError, OSError) as error:
        log.warning("no cache, so no rate limit", error=str(error))
        return 0


def counted(what: str, who: str) -> int:
    """How many of ``what`` by ``who`` there were in this minute."""
    try:
        return int(cache.get(_key(what, who)) or 0)
    except (redis.RedisError, OSError):
        return 0


def rate(what: str) -> int:
    """How many of ``what`` are allowed in a minute."""
    return int(settings.ROTA_API_RATES[what])


def left_of_minute() -> int:
    """Seconds until counting begins anew, at least one."""
    return max(1, MINUTE - int(time.time()) % MINUTE)


def address_of(request: HttpRequest | Request) -> str:
    """Where a request comes from, as the last of our own proxies tells it."""
    return BaseThrottle().get_ident(request)  # type: ignore[arg-type]  # it only reads META


class ApiThrottle(BaseThrottle):
    """So many requests a minute by one user, or by one address of the anonymous."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Count this request; False when there were too many."""
        user = request.user
        if isinstance(user, User):
            return count("user", str(user.pk)) <= rate("user")
        return count("anonymous", address_of(request)) <= rate("anonymous")

    def wait(self) -> float | None:
        """Seconds to wait before the next one."""
        return left_of_minute()


def _key(what: str, who: str) -> str:
    return f"api-rate:{what}:{who}:{int(time.time()) // MINUTE}"
