"""RedisStreamer and RedisWorker: requests over a Redis broker. README.md has the protocol."""
