"""Makes messages.binpb of the .proto files of the server. It needs grpcio-tools.

python tests/tools/make_grpc_messages.py [--output FILE]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from grpc_tools import protoc

FOLDER = Path(__file__).parents[2] / "python/service_streamer/server/_grpc"


def main() -> int:
    """Run protoc. Returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=FOLDER / "messages.binpb")
    output = parser.parse_args().output
    files = sorted(path.name for path in FOLDER.glob("*.proto"))
    return int(protoc.main(["protoc", f"-I{FOLDER}", f"--descriptor_set_out={output}", *files]))


if __name__ == "__main__":
    sys.exit(main())
