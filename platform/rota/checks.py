"""Checks of the settings alone, which Django runs before every command. They reach out to nothing.

What has to ask a database, a broker or a disk is in rota.probes, which only `rota check` runs.
"""

from __future__ import annotations

import ipaddress
import os
import pwd
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as Caution

SHORTEST_SECRET, FEWEST_LETTERS = 32, 8


@register(Tags.security)
def check_secret(**_: Any) -> list[CheckMessage]:
    """In production a secret that can be guessed lets anyone sign in as anyone."""
    key: str = settings.SECRET_KEY
    if not settings.ENV.production or (len(key) >= SHORTEST_SECRET and len(set(key)) >= FEWEST_LETTERS):
        return []
    said = f"ROTA_SECRET_KEY: too weak: it needs at least {SHORTEST_SECRET} characters, {FEWEST_LETTERS} different ones"
    return [Error(said, hint="Use the output of `openssl rand -hex 32`.", id="rota.E001")]


@register(Tags.security)
def check_exposure(**_: Any) -> list[CheckMessage]:
    """What is open to others must not be in debug mode, and should be named and encrypted."""
    env = settings.ENV
    found: list[CheckMessage] = []
    if env.debug and not _is_loopback(env.bind):
        said = f"ROTA_DEBUG: must not be on while ROTA_BIND is {env.bind}: error pages show secrets"
        found.append(Error(said, hint="Unset ROTA_DEBUG.", id="rota.E002"))
    if env.production and "*" in env.allowed_hosts:
        said = "ROTA_ALLOWED_HOSTS: * lets anyone choose the host name in links that Rota sends"
        found.append(Caution(said, hint="Name the hosts, or set ROTA_URL.", id="rota.W001"))
    if env.production and not env.https:
        said = "ROTA_URL: not set to an https:// address, so cookies are also sent unencrypted"
        found.append(Caution(said, hint="For example ROTA_URL=https://rota.example.org.", id="rota.W002"))
    if env.https and env.proxies == 0:
        said = "ROTA_PROXIES: 0, but ROTA_URL is https and Rota itself speaks only http: all visitors look like one"
        found.append(Caution(said, hint="Set it to the number of proxies in front of Rota.", id="rota.W003"))
    return found


@register(Tags.security)
def check_local_user(**_: Any) -> list[CheckMessage]:
    """Local jobs never run as root, so root has to name a user for them."""
    name = settings.ENV.local_user
    if os.geteuid() != 0 or name is None:
        return []
    try:
        wrong = pwd.getpwnam(name).pw_uid == 0
    except KeyError:
        wrong = True
    said = f"ROTA_LOCAL_USER: {name!r} is not an unprivileged user of this machine"
    return [Error(said, id="rota.E003")] if wrong else []


def _is_loopback(bind: str) -> bool:
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"
