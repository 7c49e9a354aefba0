"""Connections to the broker: their addresses, errors, and commands that are tried again."""
