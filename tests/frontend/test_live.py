"""What is published, and the socket: who may hear what, news that are joined, a map that is patched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from frontend import live
from frontend.consumers import HEAD, LIVE_PATH, SIGNED_OUT, LiveConsumer, difference
from frontend.selectors.gpumap import BYTES, gpu_bytes, layout
from frontend.selectors.numbers import Cards, cluster_numbers, summed
from jobs.models import Job
from jobs.states import Actor
from scheduler.engine.cluster import CardState
from scheduler.inventory.models import Gpu, Node
from scheduler.inventory.services import cordon, set_card_state
from scheduler.selectors import pending_by_reason
from teams.models import User
from tests.integration.world import World, make_world, node, runs

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


@pytest.fixture
def world(services: Any) -> Iterator[World]:
    cache.clear()
    yield make_world(node("n1", 4), node("n2", 4), node("n10", 2, "A100"))
    cache.clear()


def run(world: World) -> None:
    """One cycle, and what was launched runs."""
    world.cycle(world.take_over())
    for key in world.launch():
        world.see(runs(key))


# --- numbers ---


def test_numbers_come_from_the_rows(world: World) -> None:
    for gpus in (3, 3, 1):
        world.submit(gpus=gpus, model="H100")
    world.submit(gpus=1, vram_gib=40, share=True, model="A100")
    world.submit(gpus=4, model="H100")
    run(world)
    found = cluster_numbers(timezone.now())["clusters"][world.cluster.slug]
    h100 = next(pool for pool in found["pools"] if pool["model"] == "H100")
    assert (h100["total"], h100["held"], h100["free"], h100["largest"]) == (8, 7.0, 1, 1)
    assert (h100["by_free"], h100["fragmentation"]) == ([1, 1], 1.0)
    a100 = next(pool for pool in found["pools"] if pool["model"] == "A100")
    assert 0.4 < a100["held"] < 0.6
    assert (found["jobs"]["running"], found["jobs"]["queued"], found["jobs"]["waiting_gpus"]) == (4, 1, 4)
    assert [(row["code"], row["jobs"]) for row in found["reasons"]] == [("gpus", 1)]


def test_reasons_are_counted_as_the_scheduler_counts_them(world: World) -> None:
    world.submit(gpus=64)
    world.submit(gpus=1, not_before="2h")
    world.submit(gpus=1, after=[world.submit(gpus=4, model="H100").key])
    world.submit(gpus=4, model="H100")
    world.submit(gpus=4, model="H100")
    run(world)
    world.submit(gpus=2, cpus=3)
    now = timezone.now()
    mine = {row["code"]: row["jobs"] for row in cluster_numbers(now)["clusters"][world.cluster.slug]["reasons"]}
    assert mine == pending_by_reason(world.cluster.pk, now)
    assert set(mine) == {"impossible", "not_before", "gpus", "turn"}


def test_a_handful_of_queries_whatever_there_is(world: World) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            cluster_numbers(timezone.now())
        return len(queries)

    before = count()
    for _ in range(20):
        world.submit()
    run(world)
    assert count() == before <= 8


def test_sums_over_clusters() -> None:
    one, two = (
        Cards(total=8, free=8, whole_nodes=8, largest=8, by_free=[0] * 8 + [1]),
        Cards(total=4, held=4, by_free=[1]),
    )
    one.add(two)
    assert (one.total, one.free, one.by_free, one.fragmentation) == (12, 8, [1, *[0] * 7, 1], 0.0)
    assert summed([])["cards"]["held_share"] == 0.0


# --- the map ---


def test_a_byte_for_each_card(world: World) -> None:
    world.submit(gpus=2, model="H100")
    run(world)
    cards = list(Gpu.objects.filter(node__name="n2").order_by("index"))
    set_card_state(gpu=cards[0], state=CardState.OUT, actor=Actor.HEALTH, why="Xid 79")
    set_card_state(gpu=cards[1], state=CardState.SUSPECT, actor=Actor.HEALTH, why="Xid 94")
    cordon(node=Node.objects.get(name="n10"), actor=Actor.ADMIN, why="test", user=world.admin)
    names = {byte: state for state, byte in BYTES.items()}
    assert [names[byte] for byte in gpu_bytes(world.cluster.pk)] == [
        "held", "held", "free", "free", "out", "suspect", "free", "free", "cordoned", "cordoned",
    ]  # fmt: skip
    assert [(row["name"], row["gpus"]) for row in layout(world.cluster.pk)] == [("n1", 4), ("n2", 4), ("n10", 2)]


def test_a_difference_is_sent_where_it_is_shorter() -> None:
    before = bytes(100)
    after = bytes([*before[:50], 2, *before[51:]])
    assert difference(before, after) == b"\x32\x00\x00\x00\x02"
    assert difference(before, bytes([1]) * 100) is None
    assert difference(before, bytes(99)) is None
    assert difference(before, before) == b""


# --- publishing ---


def test_nothing_new_is_not_published_again(world: World) -> None:
    live.watch()
    now = timezone.now()
    assert live.publish(now) is not None
    assert live.publish(now + timedelta(seconds=1)) is None
    world.submit()
    assert live.publish(now + timedelta(seconds=2)) is not None
    assert live.version() == 2


def test_nobody_looks_so_only_the_history_is_kept(world: World) -> None:
    now = timezone.now()
    live.publish(now)
    world.submit()
    assert live.publish(now + timedelta(seconds=2)) is None
    assert live.publish(now + timedelta(seconds=11)) is not None
    assert [sample["waiting"] for sample in live.history(world.cluster.slug)] == [0, 1]


def test_the_history_is_short(world: World) -> None:
    now = timezone.now()
    for step in range(3):
        live.publish(now + timedelta(seconds=10 * step))
    key = f"{live.HISTORY}:{world.cluster.slug}"
    cache.set(key, cache.get(key) * 200)
    live.publish(now + timedelta(seconds=40))
    assert len(live.history(world.cluster.slug)) == live.HISTORY_LENGTH


# --- the socket ---


class Socket:
    """A page's end of the socket (channels' own wants another server to be installed)."""

    def __init__(self, user: Any) -> None:
        scope = {"type": "websocket", "path": LIVE_PATH, "user": user}
        self.wire: Any = ApplicationCommunicator(LiveConsumer.as_asgi(), scope)  # type: ignore[no-untyped-call]

    async def connect(self) -> None:
        await self.wire.send_input({"type": "websocket.connect"})
        assert (await self.wire.receive_output(10))["type"] == "websocket.accept"

    async def say(self, text: str) -> None:
        await self.wire.send_input({"type": "websocket.receive", "text": text})

    async def hear(self) -> Any:
        """The next message: a value of JSON, or bytes."""
        message = await self.wire.receive_output(10)
        assert message["type"] == "websocket.send", message
        return message["bytes"] if message.get("bytes") is not None else json.loads(message["text"])

    async def leave(self) -> None:
        await self.wire.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wire.wait(10)


async def opened(user: Any, *topics: str) -> tuple[Socket, Any]:
    """A socket that watches, and the greeting that it got."""
    socket = Socket(user)
    await socket.connect()
    await socket.say(json.dumps({"watch": topics}))
    return socket, await socket.hear()


@pytest.mark.parametrize("who", ["anonymous", "inactive", "one-time password"])
def test_strangers_hear_nothing(world: World, who: str) -> None:
    user: Any = None
    if who != "anonymous":
        user = User.objects.create_user("x", is_active=who != "inactive", must_change_password=who.startswith("one"))

    async def talk() -> None:
        socket = Socket(user)
        await socket.connect()
        closed = await socket.wire.receive_output(10)
        assert (closed["type"], closed["code"]) == ("websocket.close", SIGNED_OUT)

    async_to_sync(talk)()


def test_news_name_what_is_new_to_whoever_may_know(world: World) -> None:
    job, outsider = world.submit(), User.objects.create_user("outsider")

    async def talk() -> None:
        member, greeting = await opened(world.ann, "jobs", f"job:{job.key}", "job:none", "nonsense")
        stranger, _ = await opened(outsider, f"job:{job.key}")
        assert greeting == {"version": 0}
        await sync_to_async(live.tell)({"version": 5, "jobs": [job.key]})
        assert await member.hear() == {"version": 5, "topics": [f"job:{job.key}", "jobs"]}
        assert await stranger.wire.receive_nothing(timeout=0.3)
        await sync_to_async(live.tell)({"version": 6, "jobs": ["another"]})
        assert await member.hear() == {"version": 6, "topics": ["jobs"]}
        await sync_to_async(live.tell)({"version": 7, "jobs": None})  # too many to name: everything may have changed
        assert f"job:{job.key}" in (await member.hear())["topics"]
        for socket in (member, stranger):
            await socket.leave()

    async_to_sync(talk)()


def test_the_map_comes_whole_and_then_in_changes(world: World) -> None:
    def change() -> None:
        job = world.submit(gpus=1, model="H100")
        run(world)
        assert Job.objects.get(pk=job.pk).state == "running"
        cache.delete(live.map_key(world.cluster.pk))
        live.tell({"version": 9, "jobs": []})

    async def talk() -> None:
        socket, _ = await opened(world.ann, f"map:{world.cluster.pk}")
        whole = await socket.hear()
        assert HEAD.unpack(whole[: HEAD.size])[::2] == (world.cluster.pk, 0)
        assert whole[HEAD.size :] == bytes(10)
        await sync_to_async(change)()
        patch = await socket.hear()
        assert HEAD.unpack(patch[: HEAD.size])[2] == 1
        assert patch[HEAD.size :] == b"\x00\x00\x00\x00\x02"
        await socket.leave()

    async_to_sync(talk)()


def test_a_slow_reader_costs_one_message_however_much_happens() -> None:
    """C71: a thousand changes while the reader takes one message are one more, and that one is the latest."""

    async def talk() -> None:
        reader, sent, ready = LiveConsumer(), [], asyncio.Event()
        reader.topics, reader.maps, reader.pending, reader.version = frozenset({"jobs"}), {}, set(), 0
        reader.due = asyncio.Event()

        async def send(text_data: str) -> None:
            sent.append(json.loads(text_data))
            await ready.wait()

        reader.send = send
        sending = asyncio.create_task(reader._send_news())
        for version in range(1, 1001):
            await reader.live_news({"version": version, "jobs": None})
            await asyncio.sleep(0)
        assert len(sent) == 1
        assert len(reader.pending) == 1
        ready.set()
        await asyncio.sleep(0.05)
        sending.cancel()
        assert [message["version"] for message in sent][1:] == [1000]

    async_to_sync(talk)()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"watch": 3}', "x" * 20_000, '{"watch": [{"a": 1}]}'])
def test_nonsense_is_left_out(world: World, text: str) -> None:
    async def talk() -> None:
        socket = Socket(world.ann)
        await socket.connect()
        await socket.say(text)
        await socket.say(json.dumps({"watch": ["numbers"]}))
        greetings = [await socket.hear()]
        assert greetings[0] == {"version": 0}
        await socket.leave()

    async_to_sync(talk)()
