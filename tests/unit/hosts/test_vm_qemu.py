from pathlib import Path

import pytest

from tunnelmark.hosts.vm_qemu import Accelerator, Boot, MachineSpec, Nic, command
from tunnelmark.model.errors import LabError

BOOT = Boot(Path("/i/vmlinux"), Path("/w/initrd"), Path("/i/system.squashfs"))


def options(argv: list[str], name: str) -> list[str]:
    return [argv[i + 1] for i, word in enumerate(argv) if word == name]


def test_an_emulated_machine() -> None:
    argv = command(MachineSpec(), BOOT, "tcg", console=Path("/w/c"), agent_socket=Path("/w/a"))
    assert argv[0] == "qemu-system-x86_64"
    assert options(argv, "-accel") == ["tcg,thread=multi,tb-size=512"]
    assert options(argv, "-cpu") == ["qemu64,+ssse3,+sse4.1,+sse4.2,+aes,+pclmulqdq"]
    assert options(argv, "-smp") == ["2"]
    assert options(argv, "-m") == ["1024M"]
    assert {"panic=-1", "no_timer_check"} <= {*options(argv, "-append")[0].split()}
    assert "-no-reboot" in argv
    assert options(argv, "-netdev") == []
    assert options(argv, "-chardev") == ["file,id=console,path=/w/c", "socket,id=agent,path=/w/a"]
    assert options(argv, "-drive") == [
        "if=none,id=system,format=raw,readonly=on,file=/i/system.squashfs"
    ]


def test_a_plain_cpu_has_no_cipher_instructions_and_its_threads_have_names() -> None:
    for accelerator in ("tcg", "kvm"):
        argv = command(
            MachineSpec(plain_cpu=True),
            BOOT,
            accelerator,
            console=Path("/w/c"),
            agent_socket=None,
        )
        assert options(argv, "-cpu") == ["qemu64"]
        assert options(argv, "-name") == ["tunnelmark,debug-threads=on"]


@pytest.mark.parametrize(
    ("accelerator", "own_line", "mitigations"),
    [
        ("tcg", "quiet mitigations=auto,nosmt", ["mitigations=off"]),
        ("kvm", "root=/dev/sda1 quiet", []),
        ("kvm", "mitigations=auto,nosmt quiet\n", ["mitigations=auto,nosmt"]),
        ("kvm", "quiet mitigations=off\n", ["mitigations=off"]),
        ("kvm", "xmitigations=off mitigations=off;x", []),
    ],
)
def test_a_machine_on_this_cpu_has_the_mitigations_of_this_computer(
    accelerator: Accelerator, own_line: str, mitigations: list[str]
) -> None:
    argv = command(
        MachineSpec(),
        BOOT,
        accelerator,
        console=Path("/w/c"),
        agent_socket=None,
        own_line=lambda: own_line,
    )
    line = options(argv, "-append")[0].split()
    assert [word for word in line if "mitigations" in word] == mitigations
    # An emulated CPU translates a program again at each other address.
    assert ("norandmaps" in line) == (accelerator == "tcg")


def test_network_cards_join_taps_and_offload_nothing() -> None:
    nics = (Nic("tm1a", "02:00:00:00:00:01"), Nic("tm1b", "02:00:00:00:00:02"))
    spec = MachineSpec(cpus=1, memory_mib=512, nics=nics)
    argv = command(spec, BOOT, "kvm", console=Path("/w/c"), agent_socket=None)
    assert options(argv, "-netdev") == [
        "tap,id=net0,ifname=tm1a,script=no,downscript=no",
        "tap,id=net1,ifname=tm1b,script=no,downscript=no",
    ]
    cards = [device for device in options(argv, "-device") if device.startswith("virtio-net")]
    assert len(cards) == 2
    assert all("guest_tso4=off" in card and "csum=off" in card for card in cards)
    assert "mac=02:00:00:00:00:02" in cards[1]
    assert options(argv, "-accel") == ["kvm"]
    assert not any("virtserialport" in device for device in options(argv, "-device"))


def test_a_comma_in_a_path_starts_no_other_option() -> None:
    boot = Boot(Path("/i/vmlinux"), Path("/w/initrd"), Path("/i,snapshot=on/s"))
    argv = command(MachineSpec(), boot, "tcg", console=Path("/w,x"), agent_socket=Path("/a,b"))
    assert options(argv, "-drive")[0].endswith(",file=/i,,snapshot=on/s")
    assert options(argv, "-chardev") == [
        "file,id=console,path=/w,,x",
        "socket,id=agent,path=/a,,b",
    ]


@pytest.mark.parametrize(
    ("tap", "mac", "words"),
    [
        ("tm1,script=/x", "02:00:00:00:00:01", "not an interface name"),
        ("tm-much-too-long-x", "02:00:00:00:00:01", "not an interface name"),
        ("tm1", "02:00:00:00:00", "not a locally administered address"),
        ("tm1", "00:00:00:00:00:01", "not a locally administered address"),
        ("tm1", "03:00:00:00:00:01", "not a locally administered address"),
    ],
)
def test_a_card_that_is_none_is_refused(tap: str, mac: str, words: str) -> None:
    with pytest.raises(LabError, match=words):
        Nic(tap, mac)


@pytest.mark.parametrize(
    ("cpus", "memory_mib", "words"),
    [(0, 1024, "0 cpus"), (65, 1024, "65 cpus"), (1, 255, "255 MiB"), (1, 65537, "65537 MiB")],
)
def test_hardware_out_of_bounds_is_refused(cpus: int, memory_mib: int, words: str) -> None:
    with pytest.raises(LabError, match=words):
        MachineSpec(cpus=cpus, memory_mib=memory_mib)
