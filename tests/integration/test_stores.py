"""The stores that database tests stand on: real ones, and this process's own."""

from __future__ import annotations

import pytest
import redis
from django.conf import settings
from django.core.cache import cache
from django.db import connection

from teams.models import User
from tests.services import Services


@pytest.mark.django_db
def test_database_is_postgresql_with_our_tables() -> None:
    assert connection.vendor == "postgresql"
    User.objects.create_user("ada", password="a long enough one")
    assert User.objects.get(username="ada").check_password("a long enough one")


@pytest.mark.django_db
def test_each_test_is_rolled_back() -> None:
    assert not User.objects.filter(username="ada").exists()


def test_broker_and_cache_are_real(services: Services) -> None:
    cache.set("a", 1)
    with redis.Redis.from_url(services.redis_url) as client:
        assert any(b"a" in key for key in client.scan_iter())
    assert settings.BROKER.celery_url.startswith(("redis", "rediss"))
