"""What a million requests leave behind in the memory of the Redis server."""

from __future__ import annotations

from compare import adapters, broker

from cases import common

COUNT = 1_000_000
WAVE = 20_000


def main() -> None:
    import redis

    options = common.arguments(__doc__)
    address = broker.start_server()
    broker.start_workers(options.peer, address, options.model, workers=1)
    streamer = adapters.redis_streamer(address)

    def wave() -> None:
        for future in [streamer.submit([number]) for number in range(WAVE)]:
            future.result(60)

    wave()  # streams, groups and the allocator's pages are there
    with redis.Redis.from_url(f"redis://{address}") as server:
        before = server.info("memory")["used_memory"]
        for _ in range(COUNT // WAVE):
            wave()
        after = server.info("memory")["used_memory"]
    common.answer({"grown_kb": max(0.0, (after - before) / 1e3)})
    common.leave()


if __name__ == "__main__":
    main()
