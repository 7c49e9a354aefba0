"""The owner: the actor that forms the batches of all clients."""
