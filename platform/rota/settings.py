"""Django's settings, all of them, in one file. What differs between installations comes from `rota.env`."""

from __future__ import annotations

import os
import secrets

import structlog
from csp.constants import NONCE, NONE, SELF
from django.utils.translation import gettext_lazy as _

from rota import env as environment
from rota.embedded import layout as embedded_layout
from rota.logs import log_config

BASE_DIR = environment.ROOT
ENV = environment.read(os.environ, BASE_DIR)
LAYOUT = embedded_layout.recorded(ENV.home, os.getuid())

# --- Secrets and hosts ---------------------------------------------------------------------------------------------


def _secret_key() -> str:
    """The key of the environment, else that of the home (made by `rota up`), else one for this process alone."""
    if ENV.secret_key:
        return ENV.secret_key
    try:
        return LAYOUT.secret_key.read_text(encoding="utf-8").strip()
    except OSError:
        return secrets.token_urlsafe(48)


DEBUG = ENV.debug
SECRET_KEY = _secret_key()
ALLOWED_HOSTS = list(ENV.allowed_hosts)
CSRF_TRUSTED_ORIGINS = [ENV.url] if ENV.url else []

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = ENV.https
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = LANGUAGE_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 14 * 24 * 3600
SECURE_HSTS_SECONDS = 31_536_000 if ENV.https else 0
SECURE_SSL_REDIRECT = False  # the proxy in front does this; here it would also answer health checks with a redirect
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if ENV.https and ENV.proxies else None
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CSRF_FAILURE_VIEW = "frontend.views.failures.csrf_failure"
# Of Django's deployment checks some do not fit (the redirect, see above; HSTS for subdomains that are not ours), and
# some are said better, or once for all cookies, by rota.checks.
_not_fitting = ["security.W005", "security.W008", "security.W021"]
_said_by_ours = ["security.W004", "security.W009", "security.W012", "security.W016"]
SILENCED_SYSTEM_CHECKS = [*_not_fitting, *_said_by_ours]

_identity_provider = [ENV.oidc.origin] if ENV.oidc else []
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "object-src": [NONE],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "form-action": [SELF, *_identity_provider],
    }
}

# --- Applications --------------------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "rota.apps.RotaConfig",
    "frontend",  # early, so that its templates come before those of allauth
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django.contrib.postgres",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.mfa",
    "channels",
    "csp",
    "django_filters",
    "django_htmx",
    "django_tables2",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "pghistory",
    "pgtrigger",
    "rest_framework",
    "rules.apps.AutodiscoverRulesConfig",
    # Ours, from the bottom up.
    "teams",
    "quotas",
    "jobs",
    "scheduler.inventory",
    "scheduler",
    "api",
]

MIDDLEWARE = [
    "rota.middleware.request_id",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "rota.middleware.health",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "api.middleware.api_answers",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "rota.middleware.must_change_password",
]

ROOT_URLCONF = "rota.urls"
ASGI_APPLICATION = "rota.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
                "frontend.context.pages",
            ]
        },
    }
]

# --- Stores --------------------------------------------------------------------------------------------------------

# A pool that cannot connect says so only after its time-out: time enough for a server that restarts to be back.
_pool = {"pool": {"min_size": 0, "max_size": ENV.db_pool, "timeout": 10, "max_idle": 120}} if ENV.db_pool else {}
_database = ENV.database or environment.Database(
    name=embedded_layout.DATABASE, user="rota", password="", host=str(LAYOUT.postgres_socket), port=5432
)
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _database.name,
        "USER": _database.user,
        "PASSWORD": _database.password,
        "HOST": _database.host,
        "PORT": _database.port,
        # Under ASGI a connection per thread would never be given back: psycopg's pool keeps them instead.
        "CONN_MAX_AGE": 0,
        # The pool tries a connection before it hands it out, so a restarted PostgreSQL is not noticed by anyone.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            "connect_timeout": 5,
            **_database.options,
            **_pool,
        },
    }
}

BROKER = ENV.broker or environment.socket_broker(LAYOUT.valkey_socket)
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": BROKER.url,
        "KEY_PREFIX": "rota",
        "OPTIONS": {"socket_connect_timeout": 1, "socket_timeout": 2},
    }
}
SESSION_ENGINE = "django.contrib.sessions.backends.db"  # people stay signed in when Valkey is emptied

CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        # Publish/subscribe knows no database numbers, so the number goes into the names.
        "CONFIG": {"hosts": [BROKER.url], "prefix": f"rota{BROKER.number}"},
    }
}

# --- Background work -----------------------------------------------------------------------------------------------
# The tick has a queue, and a solo process, to itself in each cluster group; nothing else ever runs there.

TICK_QUEUES = tuple(f"tick-{group}" for group in ENV.tick_groups)
WORK_QUEUES = ("default", "dispatch", "observe", "ingest")

CELERY_BROKER_URL = BROKER.celery_url
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "global_keyprefix": "celery-",
    "socket_connect_timeout": 2,
    "socket_timeout": 10,
    "socket_keepalive": True,
    "health_check_interval": 10,
    "visibility_timeout": 3600,
}
# Waking a loop is a courtesy: a request never waits for a broker that is away, the loops come by themselves.
CELERY_TASK_PUBLISH_RETRY = False
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = CELERY_RESULT_SERIALIZER = CELERY_EVENT_SERIALIZER = "json"
CELERY_TASK_IGNORE_RESULT = True
CELERY_RESULT_BACKEND = None
CELERY_TASK_STORE_EAGER_RESULT = False
CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_TASK_CREATE_MISSING_QUEUES = True
# A queue is chosen by the task's name; the caller of a tick names `tick-<group>` itself (default: the first group).
CELERY_TASK_ROUTES = {
    "scheduler.tasks.tick": {"queue": TICK_QUEUES[0]},
    "scheduler.tasks.dispatch*": {"queue": "dispatch"},
    "scheduler.tasks.observe*": {"queue": "observe"},
    "monitoring.tasks.ingest*": {"queue": "ingest"},
}
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_TIMEZONE = "UTC"
# Static: the schedule is this table, kept in memory by beat, and has no state to lose. Each entry must expire before
# it would pile up: {"name": {"task": "...", "schedule": seconds, "options": {"queue": "...", "expires": seconds}}}
CELERY_BEAT_SCHEDULER = "celery.beat:Scheduler"
CELERY_BEAT_SCHEDULE: dict[str, dict[str, object]] = {
    **{
        f"tick-{group}": {
            "task": "scheduler.tasks.tick",
            "schedule": 1.0,
            "kwargs": {"group": group},
            "options": {"queue": f"tick-{group}", "expires": 1},
        }
        for group in ENV.tick_groups
    },
    "rounds": {"task": "scheduler.tasks.rounds", "schedule": 1.0, "options": {"queue": "default", "expires": 1}},
    "sweep": {"task": "scheduler.tasks.sweep", "schedule": 30.0, "options": {"queue": "default", "expires": 30}},
    "demo": {"task": "scheduler.tasks.demo", "schedule": 5.0, "options": {"queue": "default", "expires": 5}},
    "publish": {"task": "frontend.tasks.publish", "schedule": 1.0, "options": {"queue": "default", "expires": 1}},
}

# Run in this order by `manage.py bootstrap`, after the migrations, at every start; each is idempotent and returns
# what the person or the command line on this machine must know (see rota.bootstrap).
ROTA_BOOTSTRAP_STEPS = [
    "rota.bootstrap.first_admin",
    "api.bootstrap.local_token",
    "scheduler.demo.first_start.look_again",
    "scheduler.demo.first_start.this_machine",
    "scheduler.demo.first_start.demo_cluster",
]

# --- People --------------------------------------------------------------------------------------------------------

AUTH_USER_MODEL = "teams.User"
AUTHENTICATION_BACKENDS = [
    "rules.permissions.ObjectPermissionBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = LOGOUT_REDIRECT_URL = ACCOUNT_LOGOUT_REDIRECT_URL = "/"

ACCOUNT_ADAPTER = "rota.accounts.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username", "email"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "email", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https" if ENV.https else "http"
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_RATE_LIMITS = {"login": "30/m/ip", "login_failed": "10/m/ip,5/5m/key"}
ALLAUTH_TRUSTED_PROXY_COUNT = ENV.proxies
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_TOTP_ISSUER = "Rota"
SOCIALACCOUNT_AUTO_SIGNUP = True
SOCIALACCOUNT_PROVIDERS = (
    {
        "openid_connect": {
            "OAUTH_PKCE_ENABLED": True,
            "APPS": [
                {
                    "provider_id": "oidc",
                    "name": ENV.oidc.name,
                    "client_id": ENV.oidc.client_id,
                    "secret": ENV.oidc.client_secret,
                    "settings": {"server_url": ENV.oidc.issuer},
                }
            ],
        }
    }
    if ENV.oidc
    else {}
)

DEFAULT_FROM_EMAIL = SERVER_EMAIL = ENV.email_from
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if ENV.email else 'console'}.EmailBackend"
if ENV.email:
    EMAIL_HOST, EMAIL_PORT = ENV.email.host, ENV.email.port
    EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = ENV.email.user, ENV.email.password
    EMAIL_USE_SSL, EMAIL_USE_TLS, EMAIL_TIMEOUT = ENV.email.tls, ENV.email.starttls, 10

# --- API -----------------------------------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "api.authentication.TokenAuthentication",
        "api.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["api.authentication.HasScope"],
    "DEFAULT_THROTTLE_CLASSES": ["api.throttles.ApiThrottle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["api.parsing.StrictJSONParser"],
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_PAGINATION_CLASS": "api.pages.LimitOffset",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "api.errors.handle",
    "NUM_PROXIES": ENV.proxies,
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
# How many in a minute: requests of one user, of one address of the anonymous; wrong secrets of one token, and wrong
# tokens of all kinds, from one address.
ROTA_API_RATES = {"user": 3000, "anonymous": 120, "token_guess": 10, "token_guesses": 60}
SPECTACULAR_SETTINGS = {
    "TITLE": "Rota",
    "DESCRIPTION": "The duty roster of a GPU cluster: jobs, teams, quotas, clusters and nodes.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "JobState": "jobs.models.STATE_CHOICES",
        "NodeState": "api.nodes.STATES",
        "CardState": "api.nodes.CARD_STATES",
        "TeamState": "teams.models.TeamState",
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "api.schema.problems_everywhere",
    ],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}

# --- Languages, time, files ----------------------------------------------------------------------------------------

USE_I18N = USE_TZ = True
LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("zh-hans", _("Simplified Chinese"))]
LANGUAGE_COOKIE_AGE = 365 * 24 * 3600
LOCALE_PATHS = [BASE_DIR / "platform" / "rota" / "locale"]
TIME_ZONE = ENV.time_zone

STATIC_URL = "static/"
# An image has its files collected, with hashed names; a checkout serves them from where they lie.
_static_root = BASE_DIR / "staticfiles"
_collected = ENV.collect_static or (_static_root / "staticfiles.json").exists()
STATIC_ROOT = _static_root if _collected else None
WHITENOISE_USE_FINDERS = not _collected
WHITENOISE_AUTOREFRESH = DEBUG
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if _collected
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

# --- Logs ----------------------------------------------------------------------------------------------------------

LOGGING = log_config(ENV.log_level, ENV.log_format)
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.filter_by_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ],
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=True,
)
