"""A trial in which something breaks that must not: invalid, one clear line, and no exception."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tunnelmark.model.block import Stratum
from tunnelmark.model.errors import LabError, ResultError
from tunnelmark.model.faults import UnwritableError
from tunnelmark.model.params import Params
from tunnelmark.model.topology import Topology
from tunnelmark.model.trial import DriverSpec, Measurement, Point, Trial, TrialResult
from tunnelmark.model.validity import Check
from tunnelmark.probes.proc import ProcCpu
from tunnelmark.run.interrupt import Interrupted
from tunnelmark.run.trial import INTERRUPTED, run_trial
from tunnelmark.study.study import Limits, Probes
from tunnelmark.workloads.background import Load
from tunnelmark.workloads.base import Outcome, TrialContext, Workload

FIGURES = {
    "rtt_p50_ns": 5.0,
    "pdv_forward_p99_ns": 4.0,
    "owd_forward_p50_ns": -3.0,
    "owd_reverse_p99_ns": 8.0,
    "voip_mos_min": 4.4,
    "voip_calls": 12.0,
}
Do = Callable[[], object]


def _nothing() -> None:
    return None


class Made(Workload):
    """A workload that does what a test says."""

    kind: ClassVar[str] = "made"
    title: ClassVar[str] = "Made"
    params_type: ClassVar[type[Params]] = Params
    metrics: ClassVar[tuple[str, ...]] = ("rtt_p50_ns",)
    do: Do = staticmethod(_nothing)

    @property
    def expected_s(self) -> float:
        return 0.0

    def run(self, context: TrialContext) -> Outcome:
        context.progress  # noqa: B018 - as a workload would
        self.do()
        return Outcome(
            (Measurement("total", FIGURES),),
            (Check("made", ok=True, message="fine"),),
            10,
            1,
            0.1,
        )


class Host:
    spawned = ()

    def run(self, *_: object, **__: object) -> Any:
        raise LabError("no counters here")


class Lab:
    """What of a lab a trial asks."""

    def __init__(self, logs: Path, **broken: Do) -> None:
        self.logs = logs
        self.client_host = self.server_host = Host()
        self.client = SimpleNamespace(mtu_bytes=Topology(1500).mtu_bytes, ipv4="", ipv6="")
        self.server = self.client
        self.place = SimpleNamespace(
            engine="",
            owner_pid=1,
            limits={},
            cpu=ProcCpu(),
            stratum=Stratum.NAMESPACES,
            one_clock=True,
            allow_congestion=lambda _name: False,
        )
        self.link = self.emulator = None
        for name in ("counters", "problem", "restart_schedule"):
            setattr(self, name, broken.get(name, _nothing))

    direct = False

    def reports(self, _since_ns: int) -> list[Any]:
        return []


def point() -> Point:
    spec = DriverSpec("none", "none", {})
    return Point("p", spec, spec, spec, DriverSpec("made", "made", {}))


def trial(
    logs: Path,
    *,
    do: Do = _nothing,
    problem: Do = _nothing,
    cancelled: bool = False,
    background: Do | None = None,
    lab: dict[str, Do] | None = None,
    one_clock: bool = True,
) -> TrialResult:
    workload = Made(Params())
    workload.do = do  # type: ignore[method-assign]
    up: Any = SimpleNamespace(paths=(), processes=(), negotiated=())
    loads = []
    if background is not None:
        beside = Made(Params())
        beside.do = background  # type: ignore[method-assign]
        loads.append(Load("beside", beside, False))
    made = Lab(logs, **(lab or {}))
    made.place.one_clock = one_clock
    return run_trial(
        Trial("b-p-1", "b", point(), 1, 7),
        1,
        workload,
        up,
        made,  # type: ignore[arg-type]
        Limits(),
        tunnel_up=up,
        outside=up,
        background=loads,
        probes=Probes(),
        tunnel_problem=problem,  # type: ignore[arg-type]
        proofs=(),
        samples_dir=None,
        progress=lambda _progress: None,
        cancelled=lambda: cancelled,
    )


def breaks(error: BaseException) -> Do:
    def do() -> object:
        raise error

    return do


def failed(result: TrialResult, name: str) -> Check:
    assert not result.validity.valid
    return next(c for c in result.validity.checks if c.name == name and not c.ok)


def test_without_a_fault_there_is_none(tmp_path: Path) -> None:
    result = trial(tmp_path)
    assert "workload" not in {check.name for check in result.validity.checks}
    assert result.measurements[0].metrics["rtt_p50_ns"] == 5.0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error",
    [
        ValueError("math domain error"),
        OverflowError("too large"),
        KeyError("flows"),
        ZeroDivisionError(),
        AssertionError(),
        RuntimeError("two\nlines"),
        MemoryError(),
        OSError(5, "Input/output error"),
        RecursionError("deep"),
    ],
)
def test_whatever_a_workload_raises_makes_the_trial_invalid(
    tmp_path: Path, error: Exception
) -> None:
    result = trial(tmp_path, do=breaks(error))
    message = failed(result, "workload").message
    assert message.startswith(type(error).__name__)
    assert "\n" not in message
    assert "Traceback" not in message
    (file,) = tmp_path.iterdir()
    assert file.name in message
    assert "Traceback" in file.read_text(encoding="utf-8")
    assert {c.name for c in result.validity.checks} >= {"tunnel_up"}, "the rest is still looked at"


def test_the_place_is_that_in_our_own_code(tmp_path: Path) -> None:
    result = trial(tmp_path, do=lambda: Limits.model_validate({"steal": "1"}))
    message = failed(result, "workload").message
    assert message.startswith("ValidationError in run/trial.py:")


@pytest.mark.parametrize("error", [LabError("client: no route"), ResultError("damaged")])
def test_an_error_of_ours_is_its_own_line_without_a_file(tmp_path: Path, error: Exception) -> None:
    result = trial(tmp_path, do=breaks(error))
    assert failed(result, "workload").message == str(error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("tunnel", {"problem": breaks(KeyError("pid"))}),
        ("trial", {"lab": {"counters": breaks(TypeError("no dict"))}}),
        ("trial", {"lab": {"problem": breaks(IndexError("gone"))}}),
        ("trial", {"lab": {"restart_schedule": breaks(ProcessLookupError(3, "gone"))}}),
    ],
)
def test_a_driver_or_a_probe_that_raises_makes_the_trial_invalid(
    tmp_path: Path, name: str, broken: dict[str, Any]
) -> None:
    result = trial(tmp_path, **broken)
    assert "Error" in failed(result, name).message


def test_figures_of_a_workload_stay_when_the_driver_breaks(tmp_path: Path) -> None:
    result = trial(tmp_path, problem=breaks(KeyError("pid")))
    assert result.measurements[0].metrics["rtt_p50_ns"] == 5.0


def test_a_sampler_that_ends_is_no_silent_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunnelmark.run.trial._SAMPLE_S", 0.0)
    monkeypatch.setattr(
        "tunnelmark.run.trial.CpuProbe.sample", lambda *_: breaks(ValueError("no number"))()
    )
    result = trial(tmp_path, do=lambda: __import__("time").sleep(0.05))
    assert "no number" in failed(result, "cpu_samples").message


def test_a_background_that_raises_is_told_like_a_workload(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = trial(tmp_path, background=breaks(ValueError("math domain error")))
    message = failed(result, "background_beside").message
    assert "ValueError" in message
    assert "Traceback" not in capfd.readouterr().err


def test_an_interrupted_trial_that_breaks_does_not_count_against_its_point(tmp_path: Path) -> None:
    result = trial(tmp_path, cancelled=True, lab={"counters": breaks(KeyError("x"))})
    assert failed(result, INTERRUPTED)
    assert failed(result, "trial")


@pytest.mark.parametrize(
    "error", [UnwritableError("disk full"), Interrupted(), KeyboardInterrupt()]
)
def test_what_ends_the_run_goes_through(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        trial(tmp_path, do=breaks(error))


def test_a_full_disk_while_the_traceback_is_kept_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="cannot be written"):
        trial(tmp_path / "gone", do=breaks(ValueError("x")))


def test_across_two_clocks_no_one_way_figure_is_told(tmp_path: Path) -> None:
    result = trial(tmp_path, one_clock=False)
    figures = result.measurements[0].metrics
    assert {"rtt_p50_ns", "pdv_forward_p99_ns"} <= set(figures)
    assert not {name for name in FIGURES if name.startswith(("owd", "voip"))} & set(figures)
    why = next(check for check in result.validity.checks if check.name == "one_clock")
    assert why.ok
    assert "clocks of their own" in why.message
    assert "owd_forward_p50_ns" in trial(tmp_path).measurements[0].metrics
