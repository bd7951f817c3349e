"""Hosts over SSH: the computer as it is, and a network namespace of it."""

from contextlib import suppress
from pathlib import Path
from typing import Final

from tunnelmark.hosts.agent_host import AgentHost
from tunnelmark.hosts.features import tried_kernel
from tunnelmark.hosts.ssh import SshAgent
from tunnelmark.model.errors import LabError

# A namespace has a /sys of its own, in which its interfaces are.
_HOLDER: Final = "mount -t sysfs sysfs /sys && echo && exec sleep infinity"


class SshHost(AgentHost):
    """A computer over SSH; implements ``Host``. Programs see its own network: to look, not to set.

    Whoever made the agent closes it.
    """

    def __init__(
        self, agent: SshAgent, *, name: str, unique: str, log_dir: Path, pid_base: int = 0
    ) -> None:
        """Take an agent that answers; ``log_dir`` is the run's log directory here."""
        super().__init__(
            agent,
            name=name,
            unique=unique,
            log_dir=log_dir,
            root=agent.directory,
            pid_base=pid_base,
        )
        self.agent = agent
        self._features: dict[str, bool] = {}

    def has_kernel(self, feature: str) -> bool:
        """Say whether its kernel has a feature, by a trial that nobody sees."""
        if feature not in self._features:
            self._features[feature] = tried_kernel(feature, self._tried)
        return self._features[feature]

    def _tried(self, *argv: str) -> bool:
        try:
            return self.run(argv, check=False).returncode == 0
        except LabError:
            return False  # there is no such program


class SshNetnsHost(SshHost):
    """A network namespace of a computer over SSH, without a name there: it ends with its holder."""

    def __init__(
        self, agent: SshAgent, *, name: str, unique: str, log_dir: Path, pid_base: int = 0
    ) -> None:
        """Make the namespace, with its loopback up."""
        super().__init__(agent, name=name, unique=unique, log_dir=log_dir, pid_base=pid_base)
        try:
            self.holder_pid = self._hold(["unshare", "--net", "--mount", "sh", "-c", _HOLDER])
            """Process there whose network this is, for ``ip link … netns``."""
        except BaseException:
            with suppress(Exception):
                self.remove()
            raise
