"""The versions of models in a folder: found, watched, and brought into service."""
