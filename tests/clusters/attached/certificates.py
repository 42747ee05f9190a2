"""Somebody who vouches for brokers, for an hour and to nobody else."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LASTS = timedelta(hours=6)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _begun(subject: str, key: ec.EllipticCurvePrivateKey, *, is_ca: bool) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name("of these machines"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + _LASTS)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )


@dataclass
class Authority:
    """All that it gives is PEM."""

    _key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @cached_property
    def certificate(self) -> str:
        signed = _begun("of these machines", self._key, is_ca=True).sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM).decode()

    def for_address(self, address: str) -> str:
        """A certificate of who is there, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        named = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
        signed = _begun(address, key, is_ca=False).add_extension(named, critical=False).sign(self._key, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return signed.public_bytes(serialization.Encoding.PEM).decode() + private.decode()
