"""Compiles the encoder to a file that does not need its Python code.

python export.py encoder.pt2        # half a minute; needs a C++ compiler
python export.py encoder.pt
"""

from __future__ import annotations

import argparse

from encoder import MAX_TOKENS, Tokenizer, load_encoder, pad
from service import SENTENCES

import service_streamer.torch


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes a file of the encoder.")
    parser.add_argument("path", help="to write: .pt2 for AOTInductor, .pt for TorchScript")
    parser.add_argument("--max-batch", type=int, default=64, help="most sentences at a time (64)")
    options = parser.parse_args()
    example = pad([Tokenizer()(sentence) for sentence in SENTENCES])
    signature = service_streamer.torch.compile(
        load_encoder(), example, options.path, max_batch=options.max_batch, sequence=MAX_TOKENS
    )
    print(f"{options.path} answers like the encoder, for {signature.dims}")


if __name__ == "__main__":
    main()
