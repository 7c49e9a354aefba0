"""Loads and unloads models, within the memory that the hub may use."""
