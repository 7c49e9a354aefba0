"""Closed loop of asyncio tasks on one event loop."""

from __future__ import annotations

import asyncio
import time

from compare import adapters

from cases import common


async def measure(predict: adapters.AsyncPredict, clients: int, seconds: float) -> None:
    loop = common.ClosedLoop(clients)

    async def client(number: int) -> None:
        item, clock, done = [number], time.perf_counter, loop.calls[number].append
        while True:
            start = clock()
            await predict(item)
            done(clock() - start)

    tasks = [asyncio.create_task(client(number)) for number in range(clients)]
    await asyncio.sleep(common.warm_up(seconds))
    loop.mark()
    await asyncio.sleep(seconds)
    loop.mark()
    broken = [task.exception() for task in tasks if task.done()]
    if broken:
        raise RuntimeError(f"{len(broken)} tasks ended early") from broken[0]
    common.answer(loop.metrics())
    common.leave()


if __name__ == "__main__":
    options = common.arguments(__doc__, clients=128)
    apredict = adapters.apredict(
        options.peer, common.MODELS[options.model], options.workers, options.over
    )
    asyncio.run(measure(apredict, options.clients, options.seconds))
