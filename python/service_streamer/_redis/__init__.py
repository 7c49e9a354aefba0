"""RedisStreamer and RedisWorker: requests travel over a broker. README.md has the protocol."""
