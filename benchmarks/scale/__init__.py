"""A simulation of many machines around one queue, driven by measured costs."""
