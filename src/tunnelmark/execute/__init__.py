"""Who carries jobs out: this process."""

from tunnelmark.execute.here import Simulation, execute

__all__ = ["Simulation", "execute"]
