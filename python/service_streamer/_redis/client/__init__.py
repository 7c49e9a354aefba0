"""The client: what a RedisStreamer sends and receives."""
