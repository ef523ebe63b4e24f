"""What probes and Prometheus ask: /healthz, /readyz, /metrics."""

from __future__ import annotations

import time

from aiohttp import web

from muster.service.scheduler.process import SchedulerProcess

STUCK_S = 120.0
"""A replica whose loop has not come round for so long is not healthy."""


async def serve(process: SchedulerProcess, host: str, port: int) -> web.AppRunner:
    """Listen; raises OSError where that is not possible."""

    async def health(_: web.Request) -> web.Response:
        stuck = process.leads and time.monotonic() - process.beat_s > STUCK_S
        return web.Response(text="stuck\n" if stuck else "ok\n", status=500 if stuck else 200)

    async def ready(_: web.Request) -> web.Response:
        return web.Response(text="ok\n" if process.ready else "not synced\n", status=200 if process.ready else 503)

    async def metrics(_: web.Request) -> web.Response:
        process.note_watches()
        return web.Response(
            body=process.figures.text(),
            headers={"Content-Type": "application/openmetrics-text; version=1.0.0; charset=utf-8"},
        )

    app = web.Application()
    app.add_routes([web.get("/healthz", health), web.get("/readyz", ready), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner
