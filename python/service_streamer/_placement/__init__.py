"""The cores, GPUs and threads of workers."""
