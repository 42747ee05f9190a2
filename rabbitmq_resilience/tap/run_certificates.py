"""Make the certificates of one run, by which a tap speaks TLS to clients."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: Longer than any run. Brokers and clients may have clocks that differ.
_VALID_FOR = timedelta(days=365)
_CLOCKS_DIFFER_BY = timedelta(days=1)
_AUTHORITY = "authority of one run"
_PEM = serialization.Encoding.PEM


@dataclass
class RunAuthority:
    """An authority that clients of one run trust. Its key is in memory only."""

    _key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @cached_property
    def certificate(self) -> str:
        """Return its own certificate in PEM."""
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign"), False
        )
        may_sign = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, encipher_only=False, decipher_only=False, **usage
        )
        begun = self._begun(_AUTHORITY, self._key.public_key(), is_ca=True).add_extension(may_sign, critical=True)
        return self._signed(begun)

    def for_addresses(self, *addresses: str) -> str:
        """Return the certificate of a server at these addresses, which its host may have names for in addition
        (``localhost``), and its key, in PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [*map(x509.IPAddress, map(ip_address, addresses)), x509.DNSName("localhost")]
        begun = (
            self._begun(addresses[0], key.public_key(), is_ca=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        )
        private = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return self._signed(begun) + private.decode()

    def _begun(self, subject: str, key: ec.EllipticCurvePublicKey, *, is_ca: bool) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name(_AUTHORITY))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCKS_DIFFER_BY)
            .not_valid_after(now + _VALID_FOR)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )

    def _signed(self, begun: x509.CertificateBuilder) -> str:
        return begun.sign(self._key, hashes.SHA256()).public_bytes(_PEM).decode()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def server_context(pair: str) -> ssl.SSLContext:
    """Return the TLS context of a server with this certificate and key, both in PEM. No file on a disk has the key."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with os.fdopen(os.memfd_create("certificate"), "w", encoding="ascii") as file:  # ssl reads files only
        file.write(pair)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return context
