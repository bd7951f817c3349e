"""The two computers of an inventory, connected for as long as they are needed."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Self

from tunnelmark.hosts import vm_payload
from tunnelmark.hosts.inventory import ROLES, Inventory, Role
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.hosts.ssh import SshAgent, directory_of, silence
from tunnelmark.hosts.ssh_host import SshHost
from tunnelmark.model.errors import LabError

_ENDS_S: Final = 10.0
"""So long an agent takes at most to end what runs there."""
PID_BASES: Final[Mapping[Role, int]] = MappingProxyType({"client": 1 << 24, "server": 2 << 24})
"""Added to process ids there: above any process id of Linux, which has at most 1 << 22."""


@dataclass(frozen=True)
class Computer:
    """One of the two, connected."""

    role: Role
    agent: SshAgent
    host: SshHost
    """As it is, with its own network: to look, and to make what goes into namespaces."""


class Computers:
    """Connects to the computers of an inventory; leaving ends all that runs there.

    To be used by one thread: a connection ends with the thread that made it.
    """

    def __init__(self, inventory: Inventory, ledger: Ledger) -> None:
        """Take what is to be connected; raises ``LabError`` for a setting that is none."""
        self.inventory = inventory
        self._ledger = ledger
        self._silence_s = silence()
        self._connected: dict[Role, Computer] = {}
        self._number = 1
        self._gone_at_s = 0.0
        self.run_id = ledger.run_id
        self.logs = ledger.work_dir / "computers"
        """Of what runs there outside a lab; gone with the run."""

    def __enter__(self) -> Self:
        """Return them, not connected yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the connections."""
        self.close()

    @property
    def connected(self) -> bool:
        """Whether both are connected."""
        return set(self._connected) == set(ROLES) and all(
            one.agent.alive() for one in self._connected.values()
        )

    def both(self) -> Mapping[Role, Computer]:
        """Return both, connected; where a connection was lost, both connected again.

        Raises ``LabError``, one line that says which, and what is in the way.
        """
        if self._connected and not self.connected:
            # What a lost connection left there may need its silence to go: beside it, not over it.
            self.close()
            self._number += 1
            self._gone_at_s = time.monotonic() + self._silence_s + _ENDS_S
        return {role: self.one(role) for role in ROLES}

    def check_left(self) -> None:
        """Raise ``LabError`` while a lost connection still has something there.

        An agent that has heard nothing for as long as it waits takes all of it along, interface and
        address on the line too; what is there after that time stands in nobody's way.
        """
        if time.monotonic() > self._gone_at_s:
            return
        for computer in self._connected.values():
            before = (self._directory(number) for number in range(1, self._number))
            found = computer.host.run(["ls", "-d", *map(directory_of, before)], check=False).text()
            if found.strip():
                raise LabError(
                    f"{computer.role}: what the lost connection has there ends by itself "
                    f"({self._silence_s} s of silence)"
                )

    def one(self, role: Role) -> Computer:
        """Return one of them, connected."""
        if role in self._connected:
            return self._connected[role]
        agent = SshAgent.connect(
            self.inventory.entry(role),
            role=role,
            ledger=self._ledger,
            payload=vm_payload.installed(),
            directory=self._directory(self._number),
            ssh_config=self.inventory.ssh_config,
            silence_s=self._silence_s,
        )
        try:
            host = SshHost(
                agent,
                name=f"{role}-computer",
                unique=f"{self.run_id}-{role}-computer",
                log_dir=self.logs,
                pid_base=PID_BASES[role],
            )
        except BaseException:
            agent.close()
            raise
        self._connected[role] = Computer(role, agent, host)
        return self._connected[role]

    def _directory(self, number: int) -> str:
        return self.run_id if number == 1 else f"{self.run_id}-{number}"

    def close(self) -> None:
        """End the connections; idempotent."""
        for computer in self._connected.values():
            computer.agent.close()
        self._connected.clear()
