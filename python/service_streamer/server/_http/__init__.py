"""The server over HTTP/1.1: connections, routes, and the protocols on them."""
