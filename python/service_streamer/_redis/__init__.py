"""RedisStreamer and RedisWorker: requests travel over a Redis broker. README.md has the protocol."""
