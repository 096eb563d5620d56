"""Messages between processes of one host, over unix sockets that only their user can open.

    server.py       ChannelServer, Connection: asyncio, one handler for all connections
    client.py       ChannelClient, Subscription: asyncio, requests and what a server pushes
    blocking.py     BlockingClient and notify: for threads without an event loop
    answers.py      a request before it goes out, an answer when it is there: alike in all clients
    stream.py       frames over an asyncio stream, shared by server and client
    socket_file.py  the socket's file: claimed by one server at a time, taken over from a dead one
    paths.py        socket_path: where a run's sockets lie

It moves messages and errors; what they mean is the handler's and the caller's. Invariants: a peer
that is malformed, slow, frozen or gone costs its own connection and nobody else's; every wait for a
peer has a deadline.
"""

from __future__ import annotations

from live_eval.channel.blocking import BlockingClient, notify
from live_eval.channel.client import ChannelClient, Subscription
from live_eval.channel.paths import socket_path
from live_eval.channel.server import ChannelServer, Connection, Handler

__all__ = [
    "BlockingClient",
    "ChannelClient",
    "ChannelServer",
    "Connection",
    "Handler",
    "Subscription",
    "notify",
    "socket_path",
]
