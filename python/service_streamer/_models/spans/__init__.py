"""The spans of batches; needs opentelemetry, so it is imported for the first trace context.

`batches` makes them, `context` is the trace context of a request as bytes, `errors` shows errors.
"""
