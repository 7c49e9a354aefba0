"""Adapters that let one benchmark script drive our package or a peer."""
