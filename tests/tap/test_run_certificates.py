"""The certificates of a run: clients that trust its authority take them for this machine, and no one else does."""

from __future__ import annotations

import ssl

import pytest

from rabbitmq_resilience.tap.run_certificates import RunAuthority, server_context


def trusting(authority: RunAuthority) -> ssl.SSLContext:
    """Return what a client that checks everything has."""
    context = ssl.create_default_context(cadata=authority.certificate)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """Let a client and a server agree, in memory. Raise ssl.SSLError if the client does not trust the server."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while sides:
        for side in [*sides]:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_strict_clients_take_the_tap_for_this_machine(name: str) -> None:
    authority = RunAuthority()
    shake_hands(trusting(authority), server_context(authority.for_addresses("127.0.0.1")), name)


def test_no_other_machine_and_no_other_run_is_trusted() -> None:
    authority = RunAuthority()
    server = server_context(authority.for_addresses("127.0.0.1"))
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake_hands(trusting(authority), server, "127.0.0.2")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(trusting(RunAuthority()), server, "127.0.0.1")
