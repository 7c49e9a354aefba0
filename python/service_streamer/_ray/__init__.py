"""RayStreamer: the model runs in actors of a Ray cluster."""
