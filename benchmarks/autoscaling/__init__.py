"""Autoscalers of worker pods, and a simulation of the queue and the pods that they scale."""
