"""Free ports of 127.0.0.1 for the servers of tests."""

import socket


def reserve_port():
    """Bind a socket to a free port, that nobody else gets it until that is closed.

    A server of the test may listen there all the same: the socket does not, and both may share the
    address.
    """
    while True:
        keeper = socket.socket()
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("127.0.0.1", 0))
        if keeper.getsockname()[1] <= 55_535:  # the nodes of a cluster use port + 10,000 as well
            return keeper
        keeper.close()
