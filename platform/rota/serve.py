"""The web server: uvicorn on a socket that the supervisor holds (`--fd`), or on ROTA_BIND and PORT in an image."""

from __future__ import annotations

import argparse
import asyncio
import logging.config
import os
import socket
import sys

import uvicorn

from rota import env as environment
from rota.logs import log_config

GRACE_SECONDS = 2
"""How long open connections may finish at a stop: live pages connect again by themselves."""


def main() -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m rota.serve", description="Serve Rota's pages and API.")
    parser.add_argument("--fd", type=int, help="a listening socket handed down by the caller")
    listener: int | None = parser.parse_args().fd
    try:
        env = environment.read(os.environ)
    except environment.EnvError as error:
        print(error, file=sys.stderr)
        return 2
    logging.config.dictConfig(log_config(env.log_level, env.log_format))
    config = uvicorn.Config(
        "rota.asgi:application",
        host=env.bind,
        port=env.port,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=env.proxies > 0,
        forwarded_allow_ips="*" if env.proxies > 0 else None,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ws="websockets-sansio",
    )
    sockets = None if listener is None else [socket.socket(fileno=listener)]
    asyncio.run(uvicorn.Server(config).serve(sockets=sockets))
    return 0


if __name__ == "__main__":
    sys.exit(main())
