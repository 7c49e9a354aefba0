"""The replicas: actors that run the model, and how many of them there are."""
