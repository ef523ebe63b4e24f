"""`muster top`: tables, the filter, and from a job to its why."""

from __future__ import annotations

# Textual's workers and tables are generic in what nobody asks of them.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import DataTable, Static, TabbedContent

from muster.answers.view import View
from muster.cli.top_app import TopApp
from muster.engine.scheduler import Scheduler
from muster.errors import InputError
from muster.model.fleet import Device, Fleet, Node
from muster.model.queue import Queue, Quota
from muster.model.snapshot import Snapshot
from muster.model.workload import PodSet, PodShape, Workload


def view() -> View:
    devices = tuple(Device(index, "H100") for index in range(8))
    fleet = Fleet(tuple(Node(f"n{at}", 64_000, 1 << 40, devices) for at in range(2)))
    queues = (Queue("research", quotas=(Quota("H100", 16_000),)),)

    def job(name: str, gpus: int) -> Workload:
        shape = PodShape(1000, 1 << 30, gpus)
        return Workload(name, (PodSet(shape),), time_limit_s=3600.0, queue="research")

    scheduler = Scheduler(Snapshot(fleet, queues), View(Snapshot(fleet)).config)
    for name, gpus in (("run-1", 8), ("run-2", 6), ("wait-1", 8), ("wait-2", 4)):
        scheduler.submit(job(name, gpus))
    scheduler.cycle(0.0)
    return View(scheduler.snapshot(60.0))


def with_app(latest: Callable[[], View], check: Callable[[TopApp, Pilot[None]], Awaitable[None]]) -> None:
    async def run() -> None:
        app = TopApp(latest)
        async with app.run_test(size=(100, 30)) as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            await check(app, pilot)

    asyncio.run(run())


def names(app: TopApp, table: str) -> list[str]:
    return [str(key.value) for key in app.screen_stack[0].query_one(f"#table-{table}", DataTable).rows]


def test_tables_filter_and_why() -> None:
    now = view()

    async def check(app: TopApp, pilot: Pilot[None]) -> None:
        assert names(app, "waiting") == ["wait-1", "wait-2"]
        assert names(app, "running") == ["run-1", "run-2"]
        assert names(app, "queues") == ["research H100"]
        assert "16 GPUs: 14 allocated (88%), 2 free" in str(app.query_one("#head", Static).content)
        await pilot.press("slash", *"wait-2", "enter")
        assert names(app, "waiting") == ["wait-2"]
        await pilot.press("escape")
        assert names(app, "waiting") == ["wait-1", "wait-2"]
        await pilot.press("up", "enter")  # the cursor stayed on wait-2
        await app.workers.wait_for_complete()
        await pilot.pause()
        text = str(app.screen.query_one("#text", Static).content)
        assert "wait-1, 1 pod x 8 GPUs, has waited 1 min in queue research." in text
        assert "Starts in about 59 min" in text
        await pilot.press("r", "slash", "2")  # while the why is shown, tables are drawn below it
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert app.screen.query_one(TabbedContent).active == "running"
        assert names(app, "waiting") == ["wait-1", "wait-2"]

    with_app(lambda: now, check)


def test_what_is_wrong_with_the_source_is_told_and_the_last_tables_stay() -> None:
    now = view()
    answers: list[View | InputError] = [now, InputError("is cut short", file="now.snap")]

    def latest() -> View:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, InputError):
            raise answer
        return answer

    async def check(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("r")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "now.snap: is cut short" in str(app.query_one("#head", Static).content)
        assert names(app, "waiting") == ["wait-1", "wait-2"]

    with_app(latest, check)


def test_a_picture_can_be_made(tmp_path: Path) -> None:
    """All of it is drawn on 100 columns, with the keys at the bottom."""
    now = view()

    async def check(app: TopApp, pilot: Pilot[None]) -> None:
        picture = ""
        for _ in range(50):  # tables are drawn a moment after they are filled
            picture = Path(app.save_screenshot(path=str(tmp_path))).read_text()
            if "wait-1" in picture:
                break
            await pilot.pause(0.1)
        for word in ("wait-1", "Waiting", "filter", "quit"):
            assert word in picture

    with_app(lambda: now, check)
