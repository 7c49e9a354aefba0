"""What every other room may use; it uses no other room, only the core.

=================  ===============================================================================
install_check      refuses Pythons and installations that cannot work; imported first
errors             the exceptions of the package
http               what they mean to a client of HTTP, and how it leaves
messages           the texts of errors and warnings, and the address of the page that explains them
model_errors       exceptions of models on their way to callers
cuda               what is known of CUDA in this process
options            the options of a streamer, checked
option_names       the options of a constructor, those in a file, and the error of an unknown one
options_file, toml a file of options
types              the type parameters and the values of options
grouping           ``key``, ``weight`` and ``bucket``: which items run together
request_context    what travels with a request: its trace and its reader
variables          the variables that a function refers to
=================  ===============================================================================
"""
