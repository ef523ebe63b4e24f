"""Certificates and kubeconfigs of one cluster: a CA of its own, everything signed by it."""

from __future__ import annotations

import datetime
import ipaddress
import json
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ADMINS = "system:masters"
CLIENTS = {
    "admin": ("kubernetes-admin", (ADMINS,)),
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kwok": ("kwok", (ADMINS,)),
}
KUEUE, KUEUE_CA = "kueue-webhook-service.kueue-system.svc", "kueue-ca"
"""Names that Kueue looks for in the certificates of its Secret; it would replace them by others otherwise."""
_HOUR = datetime.timedelta(hours=1)


def make_all(folder: Path) -> None:
    """The CA, the server's certificate, the key of service accounts, and a certificate for each of `CLIENTS`."""
    folder.mkdir(parents=True, exist_ok=True)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)  # Kueue reads no other
    _write_key(folder / "ca.key", key)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "muster-dev-cluster")])
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    ca = (
        _builder(name, name, key, 365 * 24)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(KUEUE_CA)]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.crt").write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    serving(folder, "server")
    public = _key(folder / "sa.key").public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    (folder / "sa.pub").write_bytes(public.public_bytes(serialization.Encoding.PEM, form))
    for file, (user, groups) in CLIENTS.items():
        client(folder, file, user, groups)


def serving(folder: Path, file: str) -> None:
    """A certificate for a server on loopback: ``file``.crt and .key."""
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", KUEUE]
    found: list[x509.GeneralName] = [x509.DNSName(n) for n in names]
    found += [x509.IPAddress(ipaddress.ip_address(a)) for a in ("127.0.0.1", "10.96.0.1")]
    _signed(folder, file, "kube-apiserver", (), ExtendedKeyUsageOID.SERVER_AUTH, found, 365 * 24)


def client(folder: Path, file: str, user: str, groups: tuple[str, ...] = (), valid_hours: float = 365 * 24) -> None:
    """A certificate for a user with groups. With ``valid_hours`` below 0 it expired that many hours ago."""
    _signed(folder, file, user, groups, ExtendedKeyUsageOID.CLIENT_AUTH, [], valid_hours)


def kubeconfig(path: Path, server: str, certs: Path, file: str, namespace: str = "default") -> None:
    """A kubeconfig for the certificate ``file``; it names files, and holds no key itself."""
    user = {"client-certificate": str(certs / f"{file}.crt"), "client-key": str(certs / f"{file}.key")}
    write_kubeconfig(path, server, certs, file, user, namespace)


def write_kubeconfig(
    path: Path, server: str, certs: Path, name: str, user: dict[str, str], namespace: str = "default"
) -> None:
    """A kubeconfig (JSON, which is YAML too) with one context, readable by its owner only."""
    context = {"cluster": "dev", "user": name, "namespace": namespace}
    found = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "dev", "cluster": {"server": server, "certificate-authority": str(certs / "ca.crt")}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(found, indent=1) + "\n")


def _signed(
    folder: Path,
    file: str,
    user: str,
    groups: tuple[str, ...],
    use: x509.ObjectIdentifier,
    names: list[x509.GeneralName],
    valid_hours: float,
) -> None:
    ca = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(signer, rsa.RSAPrivateKey)
    key = _key(folder / f"{file}.key")
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, g) for g in groups]
    subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, user)])
    builder = _builder(subject, ca.subject, key, valid_hours)
    builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    made = builder.sign(signer, hashes.SHA256())
    (folder / f"{file}.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, valid_hours: float
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    ends = now + valid_hours * _HOUR
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, ends) - _HOUR)
        .not_valid_after(ends)
    )


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    _write_key(path, key)
    return key


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.touch(mode=0o600)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
