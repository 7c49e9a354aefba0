"""Asks the model over gRPC, with the client of Triton: pip install "tritonclient[grpc]"."""

import sys

import numpy as np
import tritonclient.grpc as triton

address, *sentences = sys.argv[1:]

client = triton.InferenceServerClient(address)
text = triton.InferInput("text", [len(sentences)], "BYTES")
text.set_data_from_numpy(np.array(sentences, object))
result = client.infer("sentiment", [text], client_timeout=5)
for sentence, score in zip(sentences, result.as_numpy("score"), strict=True):
    print(f"{score:+.1f}  {sentence}")
