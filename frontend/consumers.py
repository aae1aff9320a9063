"""The socket of an open page: it says which of the things on the page are new, and sends the map's bytes.

A message never carries what somebody may not see: the page fetches its own parts again, through the views and their
permissions. News that come while a slow reader is still being sent the last ones are joined; nothing queues up.
"""

from __future__ import annotations

import asyncio
import json
import struct
from contextlib import suppress
from typing import Any, Final

from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer

from frontend import live
from jobs.selectors import job_for
from scheduler.inventory.models import Cluster
from teams.models import User
from teams.problems import NotFound

LIVE_PATH: Final = "/live"
TOPICS_MOST: Final = 50
CHECK_S: Final = 30
SIGNED_OUT: Final = 4401
HEAD: Final = struct.Struct("<IIB")
"""Of a binary frame: the cluster, the version, and 0 (the whole map follows) or 1 (pairs of a place and a byte do)."""
CHANGE: Final = struct.Struct("<IB")


def difference(before: bytes, after: bytes) -> bytes | None:
    """What turns one map into the next, None where sending all of it is shorter."""
    if len(before) != len(after):
        return None
    changed = [place for place, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    if len(changed) * CHANGE.size >= len(after):
        return None
    return b"".join(CHANGE.pack(place, after[place]) for place in changed)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """One open page. It says what it shows, once: ``{"watch": ["numbers", "jobs", "job:KEY", "map:ID"]}``."""

    async def connect(self) -> None:
        """Let in whoever is signed in."""
        self.topics: frozenset[str] = frozenset()
        self.maps: dict[int, bytes] = {}
        self.pending: set[str] = set()
        self.version = 0
        self.due = asyncio.Event()
        self.sender: asyncio.Task[None] | None = None
        user = self.scope.get("user")
        if not isinstance(user, User) or not await self._still_welcome():
            await self.accept()
            await self.close(code=SIGNED_OUT)
            return
        await self.channel_layer.group_add(live.GROUP, self.channel_name)
        await self.accept()
        self.sender = asyncio.create_task(self._send_news())

    async def disconnect(self, code: int) -> None:
        """Stop sending."""
        if self.sender is not None:
            self.sender.cancel()
            with suppress(asyncio.CancelledError):
                await self.sender
            await self.channel_layer.group_discard(live.GROUP, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Take in what the page shows; what makes no sense, or is not for this person, is left out."""
        if self.sender is None or text_data is None or len(text_data) > 10_000:
            return
        try:
            asked = json.loads(text_data)["watch"]
            topics = {str(topic) for topic in asked[:TOPICS_MOST]}
        except (ValueError, TypeError, KeyError):
            return
        self.topics = frozenset(await self._allowed(topics))
        self.maps = {}
        self.version = await sync_to_async(live.version)()
        self.pending = {topic for topic in self.topics if topic.startswith("map:")}
        await self.send(text_data=json.dumps({"version": self.version}))
        self.due.set()

    async def live_news(self, event: dict[str, Any]) -> None:
        """Note what is new of what the page shows; never waits for the reader."""
        jobs: list[str] | None = event.get("jobs")
        for topic in self.topics:
            kind, _, name = topic.partition(":")
            if kind in ("numbers", "map") or jobs is None or (jobs and (kind == "jobs" or name in jobs)):
                self.pending.add(topic)
        self.version = event["version"]
        if self.pending:
            self.due.set()

    async def _send_news(self) -> None:
        """Send what is pending, all of it in one message, whenever there is some and the reader keeps up."""
        while True:
            try:
                await asyncio.wait_for(self.due.wait(), CHECK_S)
            except TimeoutError:
                if not await self._still_welcome():
                    await self.close(code=SIGNED_OUT)
                    return
                continue
            self.due.clear()
            topics, self.pending = self.pending, set()
            for topic in sorted(topics):
                if topic.startswith("map:"):
                    await self._send_map(int(topic.removeprefix("map:")))
            rest = sorted(topic for topic in topics if not topic.startswith("map:"))
            if rest:
                await self.send(text_data=json.dumps({"version": self.version, "topics": rest}))

    async def _send_map(self, cluster: int) -> None:
        version, states = await database_sync_to_async(live.gpu_map)(cluster)
        before = self.maps.get(cluster)
        self.maps[cluster] = states
        if before == states:
            return
        changes = None if before is None else difference(before, states)
        whole = changes is None
        head = HEAD.pack(cluster, version & 0xFFFFFFFF, 0 if whole else 1)
        await self.send(bytes_data=head + (states if changes is None else changes))

    @database_sync_to_async  # type: ignore[untyped-decorator]
    def _still_welcome(self) -> bool:
        live.watch()
        user = User.objects.filter(pk=self.scope["user"].pk, is_active=True, must_change_password=False)
        return user.exists()

    @database_sync_to_async  # type: ignore[untyped-decorator]
    def _allowed(self, topics: set[str]) -> set[str]:
        """Of the topics those that exist and that this person may follow."""
        allowed = topics & {"numbers", "jobs"}
        for topic in topics - allowed:
            kind, _, name = topic.partition(":")
            if kind == "job":
                with suppress(NotFound):
                    job_for(self.scope["user"], name)
                    allowed.add(topic)
            elif kind == "map" and _is_number(name) and Cluster.objects.filter(pk=int(name)).exists():
                allowed.add(topic)
        return allowed
