"""The client: what a RayStreamer sends and receives."""
