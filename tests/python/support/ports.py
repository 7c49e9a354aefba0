"""Free ports of 127.0.0.1 for the servers of tests."""

import socket

BUS = 10_000  # the nodes of a cluster talk to each other by a port so much higher than their own


def reserve_port(host="127.0.0.1"):
    """Bind a socket to a free port, so that no other process gets it until it is closed.

    A server of the test may listen there all the same: the socket does not, and both may share the
    address. With the host "", the server may listen at all addresses.
    """
    while True:
        keeper = socket.socket()
        _share(keeper)
        keeper.bind((host, 0))
        if keeper.getsockname()[1] + BUS < 65_536:
            return keeper
        keeper.close()


def reserve_ports_of_a_node():
    """Do the same for a node of a cluster: the sockets of its port, and of that of the bus."""
    while True:
        keeper, bus = reserve_port(), socket.socket()
        try:
            bus.bind(("127.0.0.1", keeper.getsockname()[1] + BUS))
        except OSError:  # another test has it
            keeper.close()
            bus.close()
        else:
            _share(bus)  # not before: one that shares gets also what another one has reserved
            return keeper, bus


def _share(keeper):
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
