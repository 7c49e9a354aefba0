"""The gateway of a worker: from the shards of a queue to an engine, and back."""
