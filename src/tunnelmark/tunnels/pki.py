"""A certificate authority that lives for one run: its key never leaves this process."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Role = Literal["client", "server"]

LIFETIME: Final = timedelta(days=30)
"""Longer than any run; a key that is found later is worth nothing."""
CLOCK_SLACK: Final = timedelta(days=1)
"""How far the clock of a device without a battery may be behind at the start."""


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, both PEM."""

    common_name: str
    certificate: bytes
    key: bytes


class RunAuthority:
    """Signs EC P-256 certificates for the two ends of a tunnel; nobody else holds one."""

    def __init__(self, name: str, now: datetime) -> None:
        """Make a new key and a self-signed certificate valid around ``now`` (with time zone)."""
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name(f"{name} authority")
        certificate = (
            _builder(self._name, self._name, self._key.public_key(), now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, common_name: str, role: Role, *, dns_name: str | None = None) -> Identity:
        """Return a new identity that is good for one role only (RFC 5280 section 4.2.1.12).

        ``dns_name`` is for programs that compare nothing else with the server's name (RFC 9525).
        """
        key = ec.generate_private_key(ec.SECP256R1())
        usage = (
            ExtendedKeyUsageOID.SERVER_AUTH if role == "server" else ExtendedKeyUsageOID.CLIENT_AUTH
        )
        builder = (
            _builder(_common_name(common_name), self._name, key.public_key(), self._now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if dns_name is not None:
            names = x509.SubjectAlternativeName([x509.DNSName(dns_name)])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Identity(
            common_name=common_name,
            certificate=certificate.public_bytes(serialization.Encoding.PEM),
            key=key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SLACK)
        .not_valid_after(now + LIFETIME)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
