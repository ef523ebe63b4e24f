"""Certificates for tests: a CA, and servers' and clients' certificates of it, valid as they are asked to be."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """A certificate authority, as clusters have one of their own."""

    def __init__(self, name: str = "kubernetes") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = _name(name)
        now = datetime.now(UTC)
        self.certificate = (
            x509.CertificateBuilder().subject_name(self.name).issuer_name(self.name).public_key(self.key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=9000))
            .not_valid_after(now + timedelta(days=9000)).add_extension(x509.BasicConstraints(True, None), critical=True)
            .sign(self.key, hashes.SHA256())
        )  # fmt: skip

    @property
    def pem(self) -> str:
        """Its own certificate."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(
        self, *names: str, begins: timedelta = timedelta(days=-1), ends: timedelta = timedelta(days=1)
    ) -> tuple[str, str]:  # fmt: skip
        """A certificate for host names and addresses, and its key, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        alternatives: list[x509.GeneralName] = [
            x509.IPAddress(ipaddress.ip_address(name)) if name[:1].isdigit() else x509.DNSName(name) for name in names
        ]
        built = (
            x509.CertificateBuilder().subject_name(_name(names[0])).issuer_name(self.name).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now + begins).not_valid_after(now + ends)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False).sign(self.key, hashes.SHA256())
        )  # fmt: skip
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return built.public_bytes(Encoding.PEM).decode(), secret.decode()
