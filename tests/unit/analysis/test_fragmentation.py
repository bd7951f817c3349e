"""What proofs by wire found, under the names that points of a study have."""

from dataclasses import replace

from made_results import block_record
from tunnelmark.analysis.fragmentation import fragmentation_points, overheads
from tunnelmark.model.block import ProofVerdict


def test_the_smallest_point_of_several_proofs_counts_and_failed_proofs_do_not() -> None:
    (proof,) = block_record().proofs
    smaller = replace(proof, fragmentation_point_bytes=1400)
    failed = replace(proof, verdict=ProofVerdict.SAW_WRONG, fragmentation_point_bytes=100)
    block = replace(block_record(), proofs=(proof, smaller, failed), baseline_proofs=())
    place = (block.link, block.device, block.tunnel)
    assert fragmentation_points([block]) == {place: 1400}
    assert set(overheads([block])) == {place}


def test_a_baseline_stands_under_its_own_name() -> None:
    (proof,) = block_record().proofs
    beside = replace(proof, fragmentation_point_bytes=1472)
    block = replace(block_record(), baseline="none x2", baseline_proofs=(beside,))
    place = (block.link, block.device)
    assert fragmentation_points([block]) == {
        (*place, "none x2"): 1472,
        (*place, block.tunnel): 1420,
    }
