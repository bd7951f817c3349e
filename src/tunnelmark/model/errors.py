"""The few errors a user may see, by who must act."""


class TunnelmarkError(Exception):
    """Base of every error that is shown to a user as one line, without a traceback.

    The message names the place, the value and the limit, in lower case, without a full stop.
    """

    exit_code = 1


class StudyError(TunnelmarkError):
    """The author of the study file must act."""

    exit_code = 2


class LabError(TunnelmarkError):
    """The machine must change: a missing program, privilege, kernel feature or memory."""

    exit_code = 3


class TunnelError(TunnelmarkError):
    """The system under test failed: it did not come up, died, or is not what was asked for."""

    exit_code = 4


class ResultError(TunnelmarkError):
    """A result directory cannot be read: damaged, foreign, or of a newer format."""

    exit_code = 5
