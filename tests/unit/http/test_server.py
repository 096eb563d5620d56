"""Where the server listens, and what it says where it cannot."""

from __future__ import annotations

import socket

import pytest

from live_eval.config import HttpSettings
from live_eval.errors import ConfigError
from live_eval.http.server import listen, url_of


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("localhost", "http://localhost:80"),
        ("::1", "http://[::1]:80"),
        ("[::1]", "http://[::1]:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
    ],
)
def test_the_address_is_one_that_a_person_can_open(host: str, url: str) -> None:
    assert url_of(host, 80) == url


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot serve HTTP at http://127.0.0.1:{port}.*another port"):
            listen(HttpSettings(port=port))


def test_a_host_that_is_not_this_machine_is_named() -> None:
    settings = HttpSettings(host="nothing.invalid", token="x" * 16)
    with pytest.raises(ConfigError, match=r"'nothing.invalid' is no address of this machine"):
        listen(settings)


def test_a_free_port_is_found() -> None:
    with listen(HttpSettings()) as listener:
        assert listener.getsockname()[1] > 0
