"""Compiles the network to a file that does not need its Python code.

python export.py network.pt2        # half a minute; needs a C++ compiler
python export.py network.pt
"""

from __future__ import annotations

import argparse

import torch
from network import SIDE, load_network

import service_streamer.torch


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes a file of the network.")
    parser.add_argument("path", help="to write: .pt2 for AOTInductor, .pt for TorchScript")
    parser.add_argument("--max-batch", type=int, default=64, help="most pictures at a time (64)")
    options = parser.parse_args()
    example = torch.randint(0, 256, (8, SIDE, SIDE, 3), dtype=torch.uint8)
    signature = service_streamer.torch.compile(
        load_network(), example, options.path, max_batch=options.max_batch
    )
    print(f"{options.path} answers like the network, for {signature.dims}")


if __name__ == "__main__":
    main()
