"""The environment, read once into typed values; the only place that reads settings from `os.environ`.

Pure but for `*_FILE` variables (secrets in files) and no Django: settings, the supervisor and `rota check` all use it.
Every error is one line that begins with the variable's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

ROOT = Path(__file__).resolve().parents[2]

VARIABLES = frozenset(
    {
        "DATABASE_URL",
        "REDIS_URL",
        "PORT",
        "ROTA_ALLOWED_HOSTS",
        "ROTA_BIND",
        "ROTA_COLLECT_STATIC",
        "ROTA_DB_POOL",
        "ROTA_DEBUG",
        "ROTA_DEMO",
        "ROTA_EMAIL_FROM",
        "ROTA_EMAIL_URL",
        "ROTA_HOME",
        "ROTA_LOCAL_GPUS",
        "ROTA_LOCAL_USER",
        "ROTA_LOG_FORMAT",
        "ROTA_LOG_LEVEL",
        "ROTA_OIDC_CLIENT_ID",
        "ROTA_OIDC_CLIENT_SECRET",
        "ROTA_OIDC_ISSUER",
        "ROTA_OIDC_NAME",
        "ROTA_POSTGRES_BIN",
        "ROTA_POSTGRES_USER",
        "ROTA_PROXIES",
        "ROTA_SECRET_KEY",
        "ROTA_TICK_GROUPS",
        "ROTA_TIME_ZONE",
        "ROTA_URL",
        "ROTA_VALKEY_BIN",
    }
)
SECRETS = frozenset(
    {"DATABASE_URL", "REDIS_URL", "ROTA_SECRET_KEY", "ROTA_OIDC_CLIENT_SECRET", "ROTA_EMAIL_URL"}
)  # these may also be given as NAME_FILE, the path of a file with the value

_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


class EnvError(ValueError):
    """One or more variables are wrong. `problems` holds one line each; `str()` joins them."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Database:
    """Where PostgreSQL is. `host` is a host name or, beginning with `/`, the folder of a unix socket."""

    name: str
    user: str
    password: str = field(repr=False)
    host: str
    port: int
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Broker:
    """Where Valkey or Redis is, spelled as each client wants it."""

    url: str = field(repr=False)
    """For redis-py, Django's cache and Channels: `redis://`, `rediss://` or `unix:///path?db=0`."""
    celery_url: str = field(repr=False)
    """For Celery: the same, or `redis+socket:///path?virtual_host=0`."""
    number: int
    """The number of the logical database; also keeps the channel names of two installations apart."""


@dataclass(frozen=True, slots=True)
class Oidc:
    """An OpenID Connect identity provider."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    name: str

    @property
    def origin(self) -> str:
        """Scheme and host alone, as a content security policy wants it."""
        parts = urlsplit(self.issuer)
        return f"{parts.scheme}://{parts.netloc}"


@dataclass(frozen=True, slots=True)
class Email:
    """A mail server."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    tls: bool
    """TLS from the first byte (`smtps://`)."""
    starttls: bool


@dataclass(frozen=True, slots=True)
class Env:
    """The whole environment. `database` and `broker` are None where the embedded servers are to be used."""

    home: Path
    port: int
    bind: str
    url: str | None
    debug: bool
    demo: bool
    secret_key: str | None = field(repr=False)
    allowed_hosts: tuple[str, ...]
    proxies: int
    database: Database | None
    broker: Broker | None
    db_pool: int
    """Most connections that one process keeps; 0 = no pool, each thread its own connection."""
    local_gpus: int
    local_user: str | None
    collect_static: bool
    """Set while an image is built: the static files get hashed names and their own folder."""
    log_level: str
    log_format: str
    tick_groups: tuple[str, ...]
    time_zone: str
    oidc: Oidc | None
    email: Email | None
    email_from: str
    postgres_bin: Path | None
    postgres_user: str | None
    valkey_bin: Path | None

    @property
    def https(self) -> bool:
        """Whether people reach Rota over HTTPS: the scheme of ROTA_URL decides."""
        return self.url is not None and self.url.startswith("https://")

    @property
    def production(self) -> bool:
        """Whether this is more than one machine's own Rota: anything but debug with a database given from outside."""
        return not self.debug and self.database is not None


class _Reader:
    """Reads variables one by one and collects what is wrong with them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.problems: list[str] = []

    def bad(self, name: str, why: str) -> None:
        self.problems.append(f"{name}: {why}")

    def text(self, name: str) -> str | None:
        value = self.environ.get(name, "").strip()
        path = self.environ.get(f"{name}_FILE", "").strip() if name in SECRETS else ""
        if value and path:
            self.bad(name, f"given twice, also as {name}_FILE; unset one of them")
        if value or not path:
            return value or None
        try:
            return Path(path).read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError) as error:
            self.bad(f"{name}_FILE", f"cannot be read: {error}")
            return None

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in _TRUE | _FALSE:
            self.bad(name, f"must be 1 or 0, not {value!r}")
        return value.lower() in _TRUE

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        if not re.fullmatch(r"[0-9]{1,9}", value) or not low <= int(value) <= high:
            self.bad(name, f"must be a whole number from {low} to {high}, not {value!r}")
            return default
        return int(value)

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = self.text(name) or default
        if value.lower() not in choices:
            self.bad(name, f"must be one of {', '.join(choices)}, not {value!r}")
            return default
        return value.lower()

    def words(self, name: str, pattern: str, what: str) -> tuple[str, ...]:
        values = tuple(part.strip() for part in (self.text(name) or "").split(",") if part.strip())
        for value in values:
            if not re.fullmatch(pattern, value):
                self.bad(name, f"{value!r} is not {what}")
        return tuple(dict.fromkeys(values))

    def path(self, name: str) -> Path | None:
        value = self.text(name)
        return Path(value).expanduser() if value else None

    def split(self, name: str, schemes: tuple[str, ...], example: str) -> tuple[SplitResult, int | None] | None:
        """The parts of a URL and its port, or None when it is not set or wrong."""
        value = self.text(name)
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError as error:
            self.bad(name, f"is not a URL ({error}); for example {example}")
            return None
        if parts.scheme not in schemes:
            said = f"{parts.scheme}://" if parts.scheme else "no scheme at all"
            self.bad(name, f"must begin with {' or '.join(f'{s}://' for s in schemes)}, not with {said}")
            return None
        return parts, port


def read(environ: Mapping[str, str], root: Path = ROOT) -> Env:
    """Read and validate the environment.

    `root` is the checkout; a relative ROTA_HOME and the default home lie under it. Raises EnvError with a line for
    each wrong variable, never only the first.
    """
    reader = _Reader(environ)
    home = reader.path("ROTA_HOME") or Path(".rota")
    url = _public_url(reader)
    hosts = reader.words(
        "ROTA_ALLOWED_HOSTS", r"\*|\.?[A-Za-z0-9_.-]+|\[[0-9a-fA-F:.]+\]", "a host name without a port"
    )
    env = Env(
        home=Path(root / home).absolute(),
        port=reader.whole("PORT", 8000, 1, 65535),
        bind=reader.text("ROTA_BIND") or "127.0.0.1",
        url=url,
        debug=reader.flag("ROTA_DEBUG", False),
        demo=reader.flag("ROTA_DEMO", True),
        secret_key=reader.text("ROTA_SECRET_KEY"),
        allowed_hosts=hosts or _default_hosts(url),
        proxies=reader.whole("ROTA_PROXIES", 0, 0, 10),
        database=_database(reader),
        broker=_broker(reader),
        db_pool=reader.whole("ROTA_DB_POOL", 10, 0, 200),
        local_gpus=reader.whole("ROTA_LOCAL_GPUS", 4, 0, 1024),
        local_user=reader.text("ROTA_LOCAL_USER"),
        collect_static=reader.flag("ROTA_COLLECT_STATIC", False),
        log_level=reader.choice("ROTA_LOG_LEVEL", "info", ("debug", "info", "warning", "error")),
        log_format=reader.choice("ROTA_LOG_FORMAT", "console", ("console", "json")),
        tick_groups=reader.words("ROTA_TICK_GROUPS", r"[a-z0-9][a-z0-9-]{0,30}", "a short name (a-z, 0-9, -)")
        or ("main",),
        time_zone=_time_zone(reader),
        oidc=_oidc(reader),
        email=_email(reader),
        email_from=reader.text("ROTA_EMAIL_FROM") or "rota@localhost",
        postgres_bin=reader.path("ROTA_POSTGRES_BIN"),
        postgres_user=reader.text("ROTA_POSTGRES_USER"),
        valkey_bin=reader.path("ROTA_VALKEY_BIN"),
    )
    if env.production and env.secret_key is None:
        reader.bad(
            "ROTA_SECRET_KEY", "must be set when DATABASE_URL is; for example the output of `openssl rand -hex 32`"
        )
    if (env.database is None) != (env.broker is None):
        given, other = ("REDIS_URL", "DATABASE_URL") if env.database is None else ("DATABASE_URL", "REDIS_URL")
        if not any(line.startswith((given, other)) for line in reader.problems):
            reader.bad(other, f"must be set too when {given} is: either both stores are embedded or none is")
    if reader.problems:
        raise EnvError(tuple(reader.problems))
    return env


def likely_typos(environ: Mapping[str, str]) -> list[str]:
    """One line for each variable that is not ours but looks like one of ours, misspelled."""
    known = sorted(VARIABLES | {f"{name}_FILE" for name in SECRETS})
    lines = []
    for name in sorted(environ):
        if name.startswith("ROTA_") and name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.85)
            if near:
                lines.append(f"{name}: nobody reads this variable; did you mean {near[0]}?")
    return lines


def _public_url(reader: _Reader) -> str | None:
    found = reader.split("ROTA_URL", ("http", "https"), "https://rota.example.org")
    if found is None:
        return None
    parts, _ = found
    if not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        reader.bad(
            "ROTA_URL", "must be only scheme and host, with a port if need be, for example https://rota.example.org"
        )
        return None
    return f"{parts.scheme}://{parts.netloc}"


def _default_hosts(url: str | None) -> tuple[str, ...]:
    host = urlsplit(url).hostname if url else None
    named = (f"[{host}]" if ":" in host else host,) if host else ()
    return (*named, "localhost", "127.0.0.1", "[::1]")


def _database(reader: _Reader) -> Database | None:
    example = "postgresql://rota:password@db.example.org:5432/rota"
    found = reader.split("DATABASE_URL", ("postgresql", "postgres"), example)
    if found is None:
        return None
    parts, port = found
    options = dict(parse_qsl(parts.query))
    name = unquote(parts.path.lstrip("/"))
    if not name:
        reader.bad("DATABASE_URL", f"names no database; for example {example}")
        return None
    if (option_port := options.pop("port", None)) is not None:
        if not option_port.isdigit():
            reader.bad("DATABASE_URL", f"port must be a number, not {option_port!r}")
            return None
        port = int(option_port)
    return Database(
        name=name,
        user=options.pop("user", unquote(parts.username or "")),
        password=options.pop("password", unquote(parts.password or "")),
        host=options.pop("host", unquote(parts.hostname or "")),
        port=port or 5432,
        options=options,
    )


def _broker(reader: _Reader) -> Broker | None:
    schemes = ("redis", "rediss", "valkey", "valkeys", "unix")
    found = reader.split("REDIS_URL", schemes, "redis://valkey.example.org:6379/0")
    if found is None:
        return None
    parts, _ = found
    query = dict(parse_qsl(parts.query))
    number = query.get("db", "0") if parts.scheme == "unix" else (parts.path.strip("/") or query.get("db", "0"))
    if not re.fullmatch(r"[0-9]{1,4}", number):
        reader.bad("REDIS_URL", f"the database must be a number, not {number!r}")
        return None
    if parts.scheme == "unix":
        if not parts.path or parts.hostname:
            reader.bad("REDIS_URL", "a unix socket is written as unix:///path/of/the.sock?db=0")
            return None
        return socket_broker(Path(unquote(parts.path)), int(number))
    if not parts.hostname:
        reader.bad("REDIS_URL", "names no host; for example redis://valkey.example.org:6379/0")
        return None
    scheme = parts.scheme.replace("valkeys", "rediss").replace("valkey", "redis")
    url = parts._replace(scheme=scheme, path=f"/{number}").geturl()
    return Broker(url=url, celery_url=url, number=int(number))


def socket_broker(path: Path, number: int = 0) -> Broker:
    """The broker behind the unix socket at `path`."""
    return Broker(f"unix://{path}?db={number}", f"redis+socket://{path}?virtual_host={number}", number)


def _time_zone(reader: _Reader) -> str:
    name = reader.text("ROTA_TIME_ZONE") or "UTC"
    try:
        ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        reader.bad("ROTA_TIME_ZONE", f"there is no time zone {name!r}; for example Asia/Shanghai")
        return "UTC"
    return name


def _oidc(reader: _Reader) -> Oidc | None:
    issuer = reader.split("ROTA_OIDC_ISSUER", ("https", "http"), "https://id.example.org/realms/main")
    client_id, secret = reader.text("ROTA_OIDC_CLIENT_ID"), reader.text("ROTA_OIDC_CLIENT_SECRET")
    name = reader.text("ROTA_OIDC_NAME") or "Single sign-on"
    if issuer is None:
        if client_id or secret:
            reader.bad("ROTA_OIDC_ISSUER", "must be set when ROTA_OIDC_CLIENT_ID or ROTA_OIDC_CLIENT_SECRET is")
        return None
    if client_id is None:
        reader.bad("ROTA_OIDC_CLIENT_ID", "must be set when ROTA_OIDC_ISSUER is")
        return None
    return Oidc(issuer[0].geturl().rstrip("/"), client_id, secret or "", name)


def _email(reader: _Reader) -> Email | None:
    found = reader.split("ROTA_EMAIL_URL", ("smtp", "smtps"), "smtp://user:password@mail.example.org:587?starttls=1")
    if found is None:
        return None
    parts, port = found
    tls = parts.scheme == "smtps"
    starttls = dict(parse_qsl(parts.query)).get("starttls", "0").lower() in _TRUE
    if not parts.hostname or (tls and starttls):
        reader.bad("ROTA_EMAIL_URL", "needs a host, and smtps:// excludes starttls=1")
        return None
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return Email(parts.hostname, port or (465 if tls else 25), user, password, tls, starttls)
