"""The environment: what each variable becomes, and the one line that each mistake gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.env import Env, EnvError, likely_typos, read

ROOT = Path("/checkout")
STORES = {"DATABASE_URL": "postgresql://u:p@db/rota", "REDIS_URL": "redis://kv", "ROTA_SECRET_KEY": "x" * 40}


def env(**variables: str) -> Env:
    return read(variables, ROOT)


def test_nothing_set_is_one_machine_with_its_own_stores() -> None:
    one = env()
    assert (one.home, one.port, one.bind) == (ROOT / ".rota", 8000, "127.0.0.1")
    assert (one.database, one.broker, one.secret_key) == (None, None, None)
    assert (one.demo, one.debug, one.https, one.production) == (True, False, False, False)
    assert one.allowed_hosts == ("localhost", "127.0.0.1", "[::1]")
    assert (one.local_gpus, one.tick_groups) == (4, ("main",))


@pytest.mark.parametrize(
    ("url", "host", "port", "name", "user", "password", "options"),
    [
        ("postgresql://u:p@db:6000/rota", "db", 6000, "rota", "u", "p", {}),
        ("postgres://db/rota", "db", 5432, "rota", "", "", {}),
        ("postgresql://u:p%40ss%2F@[::1]/rota", "::1", 5432, "rota", "u", "p@ss/", {}),
        ("postgresql:///rota?host=/run/pg&user=u&port=6", "/run/pg", 6, "rota", "u", "", {}),
        ("postgresql://u@%2Frun%2Fpg/rota", "/run/pg", 5432, "rota", "u", "", {}),
        ("postgresql://u@db/rota?sslmode=verify-full", "db", 5432, "rota", "u", "", {"sslmode": "verify-full"}),
    ],
)
def test_database_urls(
    url: str, host: str, port: int, name: str, user: str, password: str, options: dict[str, str]
) -> None:
    found = env(**STORES | {"DATABASE_URL": url}).database
    assert found is not None
    assert (found.host, found.port, found.name) == (host, port, name)
    assert (found.user, found.password, found.options) == (user, password, options)


@pytest.mark.parametrize(
    ("url", "redis_url", "celery_url", "number"),
    [
        ("redis://kv", "redis://kv/0", "redis://kv/0", 0),
        ("valkey://:p@kv:7000/3", "redis://:p@kv:7000/3", "redis://:p@kv:7000/3", 3),
        ("valkeys://kv/1", "rediss://kv/1", "rediss://kv/1", 1),
        ("unix:///run/kv.sock?db=2", "unix:///run/kv.sock?db=2", "redis+socket:///run/kv.sock?virtual_host=2", 2),
        ("unix:///run/kv.sock", "unix:///run/kv.sock?db=0", "redis+socket:///run/kv.sock?virtual_host=0", 0),
    ],
)
def test_broker_urls(url: str, redis_url: str, celery_url: str, number: int) -> None:
    found = env(**STORES | {"REDIS_URL": url}).broker
    assert found is not None
    assert (found.url, found.celery_url, found.number) == (redis_url, celery_url, number)


def test_the_public_address_decides_hosts_and_https() -> None:
    one = env(ROTA_URL="https://rota.example.org/")
    assert (one.url, one.https) == ("https://rota.example.org", True)
    assert one.allowed_hosts[0] == "rota.example.org"
    assert not env(ROTA_URL="http://rota.example.org:8000").https


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"PORT": "x"}, "PORT: must be a whole number from 1 to 65535, not 'x'"),
        ({"PORT": "65536"}, "PORT: must be a whole number from 1 to 65535, not '65536'"),
        ({"PORT": "-1"}, "PORT: must be a whole number from 1 to 65535, not '-1'"),
        ({"ROTA_DEBUG": "maybe"}, "ROTA_DEBUG: must be 1 or 0, not 'maybe'"),
        ({"ROTA_LOCAL_GPUS": "4.5"}, "ROTA_LOCAL_GPUS: must be a whole number from 0 to 1024, not '4.5'"),
        ({"ROTA_LOG_LEVEL": "loud"}, "ROTA_LOG_LEVEL: must be one of debug, info, warning, error, not 'loud'"),
        ({"ROTA_ALLOWED_HOSTS": "a.org,b.org:80"}, "ROTA_ALLOWED_HOSTS: 'b.org:80' is not a host name without a port"),
        ({"ROTA_TICK_GROUPS": "a,B"}, "ROTA_TICK_GROUPS: 'B' is not a short name (a-z, 0-9, -)"),
        ({"ROTA_TIME_ZONE": "Mars/Base"},
         "ROTA_TIME_ZONE: there is no time zone 'Mars/Base'; for example Asia/Shanghai"),
        ({"ROTA_URL": "rota.example.org"}, "ROTA_URL: must begin with http:// or https://, not with no scheme at all"),
        ({"ROTA_OIDC_CLIENT_ID": "a"},
         "ROTA_OIDC_ISSUER: must be set when ROTA_OIDC_CLIENT_ID or ROTA_OIDC_CLIENT_SECRET is"),
        ({"ROTA_SECRET_KEY_FILE": "/nowhere/key"},
         "ROTA_SECRET_KEY_FILE: cannot be read: [Errno 2] No such file or directory: '/nowhere/key'"),
        (STORES | {"DATABASE_URL": "mysql://h/x"},
         "DATABASE_URL: must begin with postgresql:// or postgres://, not with mysql://"),
        (STORES | {"DATABASE_URL": "postgresql://h"},
         "DATABASE_URL: names no database; for example postgresql://rota:password@db.example.org:5432/rota"),
        (STORES | {"REDIS_URL": "redis://kv/x"}, "REDIS_URL: the database must be a number, not 'x'"),
        (STORES | {"REDIS_URL": ""}, ("REDIS_URL: must be set too when DATABASE_URL is: "
         "either both stores are embedded or none is")),
        ({"REDIS_URL": "redis://kv"}, ("DATABASE_URL: must be set too when REDIS_URL is: "
         "either both stores are embedded or none is")),
        (STORES | {"ROTA_SECRET_KEY": ""}, ("ROTA_SECRET_KEY: must be set when DATABASE_URL is; "
         "for example the output of `openssl rand -hex 32`")),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_that_names_the_variable(variables: dict[str, str], line: str) -> None:
    with pytest.raises(EnvError) as caught:
        env(**variables)
    assert caught.value.problems == (line,)


def test_an_identity_provider_is_known_by_its_issuer_and_allowed_by_its_origin() -> None:
    one = env(ROTA_OIDC_ISSUER="https://id.example.org/realms/main/", ROTA_OIDC_CLIENT_ID="rota").oidc
    assert one is not None
    assert (one.issuer, one.origin) == ("https://id.example.org/realms/main", "https://id.example.org")


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(EnvError) as caught:
        env(PORT="0", ROTA_DEBUG="2", ROTA_HOME="/x")
    assert [line.split(":")[0] for line in caught.value.problems] == ["PORT", "ROTA_DEBUG"]


def test_secrets_may_come_from_files_and_are_never_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-a-file\n")
    one = env(**STORES | {"ROTA_SECRET_KEY": "", "ROTA_SECRET_KEY_FILE": str(tmp_path / "key")})
    assert one.secret_key == "from-a-file"
    shown = repr(env(**STORES | {"DATABASE_URL": "postgresql://u:hunter2@db/rota", "REDIS_URL": "redis://:hunter3@kv"}))
    assert "hunter" not in shown
    assert "x" * 40 not in shown


def test_a_secret_given_twice_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match="ROTA_SECRET_KEY: given twice, also as ROTA_SECRET_KEY_FILE"):
        env(ROTA_SECRET_KEY="a", ROTA_SECRET_KEY_FILE=str(tmp_path))


def test_likely_typos_are_noticed_and_strangers_are_not() -> None:
    lines = likely_typos({"ROTA_DEBGU": "1", "ROTA_SECRETKEY": "x", "ROTA_SHARED": "/x", "HOME": "/root"})
    assert lines == [
        "ROTA_DEBGU: nobody reads this variable; did you mean ROTA_DEBUG?",
        "ROTA_SECRETKEY: nobody reads this variable; did you mean ROTA_SECRET_KEY?",
    ]
