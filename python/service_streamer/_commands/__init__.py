"""The command line: ``service-streamer``, or ``python -m service_streamer``.

``main`` parses the arguments and runs one command. Each command is a module with two functions:
``add_to`` adds its parser, ``run`` takes the parsed options and returns the exit code.
"""
