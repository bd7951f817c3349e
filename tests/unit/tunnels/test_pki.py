"""The authority of a run: what it signs is good for one role, one run and a short time."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from tunnelmark.tunnels.pki import CLOCK_SLACK, LIFETIME, Role, RunAuthority

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def test_a_certificate_belongs_to_its_key_its_role_and_its_authority() -> None:
    authority = RunAuthority("tmabcde", NOW)
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    roles: tuple[tuple[Role, x509.ObjectIdentifier], ...] = (
        ("client", ExtendedKeyUsageOID.CLIENT_AUTH),
        ("server", ExtendedKeyUsageOID.SERVER_AUTH),
    )
    for role, usage in roles:
        identity = authority.issue(f"tmabcde {role}", role)
        certificate = x509.load_pem_x509_certificate(identity.certificate)
        key = serialization.load_pem_private_key(identity.key, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert key.curve.name == "secp256r1"
        assert certificate.public_key() == key.public_key()
        certificate.verify_directly_issued_by(issuer)
        extended = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(extended) == [usage]
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        assert not basic.ca


def test_a_name_for_programs_that_look_only_there_is_in_the_certificate() -> None:
    authority = RunAuthority("tmabcde", NOW)
    for dns_name in (None, "server.test"):
        identity = authority.issue("tmabcde server", "server", dns_name=dns_name)
        certificate = x509.load_pem_x509_certificate(identity.certificate)
        names = [
            name
            for extension in certificate.extensions
            if isinstance(extension.value, x509.SubjectAlternativeName)
            for name in extension.value.get_values_for_type(x509.DNSName)
        ]
        assert names == ([dns_name] if dns_name else [])


def test_it_is_valid_from_a_slow_clock_s_yesterday_for_thirty_days() -> None:
    certificate = x509.load_pem_x509_certificate(RunAuthority("tmabcde", NOW).certificate)
    assert certificate.not_valid_before_utc == NOW - CLOCK_SLACK
    assert certificate.not_valid_after_utc == NOW + LIFETIME
    assert timedelta(0) < LIFETIME <= timedelta(days=30)


def test_another_run_s_authority_vouches_for_nobody_here() -> None:
    ours, theirs = RunAuthority("tmabcde", NOW), RunAuthority("tmabcde", NOW)
    certificate = x509.load_pem_x509_certificate(ours.issue("client", "client").certificate)
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(ours.certificate))
    with pytest.raises(InvalidSignature):
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(theirs.certificate))


def test_serial_numbers_and_keys_are_never_the_same_twice() -> None:
    authority = RunAuthority("tmabcde", NOW)
    identities = [authority.issue("client", "client") for _ in range(5)]
    assert len({identity.key for identity in identities}) == 5
    assert len({identity.certificate for identity in identities}) == 5
