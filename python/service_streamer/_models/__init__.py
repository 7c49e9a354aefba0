"""Models, and what runs a batch or a step of one, in whichever thread or process.

It uses the engine, the streams and the interface of streamers.

=====================  ===========================================================================
model                  a predict function or a `ManagedModel`: checked, pickled and loaded
step_model             `StepModel`, the base class of models that make outputs in steps
native                 what a native model is to a streamer
session_model          pickles the model of a notebook
unpicklable            finds the part of a model that cannot be pickled
serving                answers a batch; if the model raises, it finds the guilty requests
log_entry              the log record of a batch
spans                  the spans of batches; needs opentelemetry
steps                  runs a `StepModel`
=====================  ===========================================================================
"""
