"""The few errors a user may see, by who must act."""


class TunnelmarkError(Exception):
    """Base of every error that is shown to a user as one line, without a traceback.

    The message names the place, the value and the limit, in lower case, without a full stop.
    """

    exit_code = 1
    transient = False
    """Whether the cause may be gone in another attempt, which is then made."""


class StudyError(TunnelmarkError):
    """The author of the study file must act."""

    exit_code = 2


class LabError(TunnelmarkError):
    """The machine must change: a missing program, privilege, kernel feature or memory."""

    exit_code = 3


class LabFailedError(LabError):
    """Something of the lab was late, ended early or gave no answer: it may do better next time."""

    transient = True


class TunnelError(TunnelmarkError):
    """The system under test failed: it did not come up, or died. It may do better next time."""

    exit_code = 4
    transient = True


class RefusedError(TunnelError):
    """The system under test is not what was asked for, or says that it never will be."""

    transient = False


class ResultError(TunnelmarkError):
    """A result directory cannot be read: damaged, foreign, or of a newer format."""

    exit_code = 5
