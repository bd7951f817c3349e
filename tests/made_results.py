"""Makes result directories with known figures, for tests of store, analysis and report."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tunnelmark.model.block import BlockRecord, ProofVerdict, WireProof, WireSample
from tunnelmark.model.trial import DriverSpec, Measurement, Point, Trial, TrialResult
from tunnelmark.model.tunnel import DataPath, Negotiated
from tunnelmark.model.validity import Check, Validity
from tunnelmark.store import Manifest, Writer
from tunnelmark.study.points import pair_id

START = datetime(2026, 11, 21, 4, 0, tzinfo=UTC)
LINK = DriverSpec("serial", "8 Mbit/s", {"rate": "8 Mbit/s"})
HOST = DriverSpec("host", "host", {})


def manifest(**changes: object) -> Manifest:
    values: dict[str, object] = {
        "format": 3,
        "study": "made",
        "title": "Made for a test",
        "description": "",
        "study_text": "",
        "study_source": "made.toml",
        "study_sha256": "",
        "run_id": "tm00000",
        "seed": 1,
        "confidence": 0.95,
        "precision_metric": "goodput_bit_s",
        "started_at": START.isoformat(),
        "environment": {"kernel": "6.1"},
        **changes,
    }
    return Manifest.model_validate(values)


def point(tunnel: str, payload_bytes: int) -> Point:
    kind = "none" if tunnel == "none" else "openvpn"
    params = {"payload_bytes": payload_bytes, "gap": "5 ms"}
    columns = {"payload_bytes": payload_bytes, "gap_ns": 5_000_000, "duration_ns": None}
    workload = DriverSpec("udp_echo", f"udp_echo {payload_bytes}", params, columns)
    return Point(f"{tunnel}{payload_bytes}", DriverSpec(kind, tunnel, {}), LINK, HOST, workload)


def trial_result(
    tunnel: str,
    payload_bytes: int,
    repeat: int,
    figures: Mapping[str, float | None],
    *,
    valid: bool = True,
    block: str = "b1",
    attempt: int = 1,
    samples: tuple[str, ...] = (),
) -> TrialResult:
    at = point(tunnel, payload_bytes)
    trial = Trial(f"{block}-{at.point_id}-{repeat}", block, at, repeat, 1)
    check = Check("made", ok=valid, message="made <b>so</b>" if not valid else "fine")
    return TrialResult(
        trial,
        attempt,
        START + timedelta(seconds=repeat),
        1.0,
        (Measurement("total", figures),),
        Validity((check,)),
        samples=samples,
    )


def write(folder: Path, results: list[TrialResult], **changes: object) -> Path:
    directory = folder / "result"
    writer = Writer.create(directory, manifest(**changes))
    try:
        for result in results:
            writer.append(result, pair_id=pair_id(result.trial.point))
        for block in {result.trial.block_id for result in results}:
            writer.seal(block)
        writer.write_block(block_record())
    finally:
        writer.close()
    return directory


def block_record(error: str | None = None) -> BlockRecord:
    agreed = Negotiated(
        "AES-256-GCM", "OpenVPN 2.6.14", "openvpn", 1500, DataPath.USER_SPACE, {"auth": "none"}
    )
    proof = WireProof(
        "0",
        ProofVerdict.PROVED,
        message="12 packets, all the tunnel's",
        packets=12,
        foreign_packets=0,
        marker_seen=False,
        encrypted_expected=True,
        samples=(WireSample(1000, (1080,)),),
        fragmentation_point_bytes=1420,
    )
    return BlockRecord(
        "b1",
        "openvpn",
        "8 Mbit/s",
        "host",
        "network namespaces of this machine, native CPU",
        (agreed,),
        (),
        (proof,),
        (),
        {"lab_up": 0.3},
        error,
    )
