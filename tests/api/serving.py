"""A real web server, and the real loops, in threads of the test: for what the test client cannot show."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from django.db import connections

from rota.asgi import application
from scheduler.connect import Connections
from scheduler.loop import Loop
from scheduler.rounds import Rounds

EVERY = 0.05


@contextmanager
def serving(port: int = 0) -> Iterator[str]:
    """Serve Rota as it is served in earnest, on this process's test database; yields the address."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    config = uvicorn.Config(
        application, lifespan="off", log_config=None, access_log=False, ws="websockets-sansio",
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        until = time.monotonic() + 20
        while not server.started:
            assert time.monotonic() < until
            assert thread.is_alive()
            time.sleep(0.02)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


@contextmanager
def looping(cluster_id: int) -> Iterator[None]:
    """Let the real loop and the real rounds run for one cluster."""
    over = threading.Event()
    loop, rounds = Loop(), Rounds(connections=Connections())

    def run() -> None:
        try:
            while not over.wait(EVERY):
                loop.tick(cluster_id)
                rounds.dispatch(cluster_id)
                rounds.observe(cluster_id)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(20)
