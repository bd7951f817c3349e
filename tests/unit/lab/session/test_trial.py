"""A trial in which something breaks that must not: invalid, one clear line, and no exception."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tunnelmark.lab.emulators import LinkCounters
from tunnelmark.lab.session.stand import Side, Stand, Task
from tunnelmark.lab.session.trial import _Running, run_trial
from tunnelmark.lab.session.two_clocks import TwoClocks
from tunnelmark.model.block import ProofVerdict, Stratum
from tunnelmark.model.errors import LabError, ResultError
from tunnelmark.model.faults import UnwritableError
from tunnelmark.model.params import Params
from tunnelmark.model.rules import Limits, Probes
from tunnelmark.model.topology import Topology
from tunnelmark.model.trial import DriverSpec, Measurement, Point, Trial, TrialResult
from tunnelmark.model.validity import INTERRUPTED, Check
from tunnelmark.probes.cpu import CpuProbe
from tunnelmark.probes.proc import ProcCpu
from tunnelmark.run.interrupt import Interrupted
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
        return self.outcome()

    @staticmethod
    def outcome() -> Outcome:
        return Outcome(
            (Measurement("total", FIGURES),),
            (Check("made", ok=True, message="fine"),),
            10,
            1,
            0.1,
        )


class Restarting(Made):
    """One that takes the tunnel down and sets it up again."""

    restarts: ClassVar[bool] = True


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
            link_owner_pid=1,
            limits={},
            cpu=ProcCpu(),
            stratum=Stratum.NAMESPACES,
            one_clock=True,
            allow_congestion=lambda _name: False,
        )
        self.client_hosts = (self.client_host,)
        self.clients = (self.client,)
        self.wires = 1
        self.is_gateway = False
        self.emulators = ()
        for name in ("counters", "begin", "problem"):
            setattr(self, name, broken.get(name, _nothing))

    direct = False
    spin = True
    link: Any = None

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
    set_ups: Any = None,
) -> TrialResult:
    workload = Made(Params()) if set_ups is None else Restarting(Params())
    workload.do = do
    up: Any = SimpleNamespace(paths=(), processes=(), negotiated=())
    loads = []
    if background is not None:
        beside = Made(Params())
        beside.do = background
        loads.append(Load("beside", beside, False))
    made = Lab(logs, **(lab or {}))
    made.place.one_clock = one_clock
    side = Side(up, (), ())
    tunnel: Any = SimpleNamespace(problem=problem, check_agreed=_nothing)
    stand = Stand(
        lab=made,  # type: ignore[arg-type]
        tunnel=tunnel,
        own=side,
        base=side,
        limits=Limits(),
        probes=Probes(),
        floor=None,
        samples_dir=None,
    )
    observer: Any = SimpleNamespace(progress=lambda *_: None, cancelled=lambda: cancelled)
    task = Task(Trial("b-p-1", "b", point(), 1, 7), 1, workload, loads)
    if set_ups is not None:
        set_ups.stand = stand
    return run_trial(stand, side, task, observer, set_ups)


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
    assert message.startswith("ValidationError in lab/session/trial.py:")


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
        ("trial", {"lab": {"begin": breaks(ProcessLookupError(3, "gone"))}}),
    ],
)
def test_a_driver_or_a_probe_that_raises_makes_the_trial_invalid(
    tmp_path: Path, name: str, broken: dict[str, Any]
) -> None:
    result = trial(tmp_path, **broken)
    assert "Error" in failed(result, name).message


@pytest.mark.parametrize(("name", "place"), [("probes", "findings"), ("losses", "LossWatch.stop")])
def test_what_looks_behind_the_traffic_may_break_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, place: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("counter")

    monkeypatch.setattr(f"tunnelmark.lab.session.trial.{place}", broken)
    assert "KeyError" in failed(trial(tmp_path), name).message


def test_figures_of_a_workload_stay_when_the_driver_breaks(tmp_path: Path) -> None:
    result = trial(tmp_path, problem=breaks(KeyError("pid")))
    assert result.measurements[0].metrics["rtt_p50_ns"] == 5.0


def test_a_sampler_that_ends_is_no_silent_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunnelmark.lab.session.stand._SAMPLE_S", 0.0)
    monkeypatch.setattr(
        "tunnelmark.lab.session.trial.CpuProbe.sample", lambda *_: breaks(ValueError("no number"))()
    )
    result = trial(tmp_path, do=lambda: __import__("time").sleep(0.05))
    assert "no number" in failed(result, "cpu_samples").message


def test_a_background_that_raises_is_reported_like_a_workload(
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


@pytest.mark.parametrize(("apart_ns", "ok"), [(None, False), (20_000_000, True)])
def test_the_link_is_judged_by_what_the_figures_of_the_workload_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart_ns: int | None, ok: bool
) -> None:
    outcome = replace(Made.outcome(), apart_ns=apart_ns)
    monkeypatch.setattr(Made, "outcome", staticmethod(lambda: outcome))
    way = defaultdict(int) | {"lateness_recent_ns": {"p90": 0, "tail": 3_000_000}}
    counted = LinkCounters(way, way)
    checks = trial(tmp_path, lab={"counters": lambda: counted, "begin": lambda: counted}).validity
    found = {check.name: check.ok for check in checks.checks}
    assert (found["link_lateness_forward"], found["link_lateness_reverse"]) == (ok, ok)


@pytest.mark.parametrize("loaded", [False, True])
def test_a_workload_knows_whether_anything_else_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loaded: bool
) -> None:
    knew: list[bool] = []

    def run(self: Made, context: TrialContext) -> Outcome:
        knew.append(context.alone)
        return self.outcome()

    monkeypatch.setattr(Made, "run", run)
    trial(tmp_path, background=_nothing if loaded else None)
    assert set(knew) == {not loaded}


@pytest.mark.parametrize(
    "error", [UnwritableError("disk full"), Interrupted(), KeyboardInterrupt()]
)
def test_what_ends_the_run_goes_through(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        trial(tmp_path, do=breaks(error))


def test_a_full_disk_while_the_traceback_is_kept_ends_the_run(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    with pytest.raises(ResultError, match="cannot be written"):
        trial(in_the_way, do=breaks(ValueError("x")))


def test_across_two_clocks_without_a_bound_no_one_way_figure_is_reported(tmp_path: Path) -> None:
    result = trial(tmp_path, one_clock=False)
    figures = result.measurements[0].metrics
    assert {"rtt_p50_ns", "pdv_forward_p99_ns"} <= set(figures)
    assert not {name for name in FIGURES if name.startswith(("owd", "voip"))} & set(figures)
    why = next(check for check in result.validity.checks if check.name == "one_clock")
    assert why.ok
    assert "the ends have separate clocks; their offset is unknown: no packet" in why.message
    assert result.details["clocks"] == "no packet was recorded at both ends"
    assert "owd_forward_p50_ns" in trial(tmp_path).measurements[0].metrics


def test_across_two_clocks_a_one_way_figure_has_its_error_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TwoClocks, "begin", lambda _: None)
    monkeypatch.setattr(TwoClocks, "error_ns", property(lambda _: 7.0))
    monkeypatch.setattr(TwoClocks, "check", lambda _: Check("one_clock", ok=True, message=""))
    figures = trial(tmp_path, one_clock=False).measurements[0].metrics
    assert figures["clock_error_ns"] == 7.0
    assert "owd_forward_p50_ns" in figures
    # Its error is not among the figures, and so it is not either.
    assert not {name for name in figures if name.startswith("voip_mos")}


def restored(lost: str | None) -> Any:
    return SimpleNamespace(again=None, lost=lost, restore=_nothing, stand=None)


def test_clocks_that_cannot_be_compared_are_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TwoClocks, "exchange", lambda _: breaks(KeyError("offset"))())
    assert "KeyError" in failed(trial(tmp_path, one_clock=False), "clocks").message


def test_a_trial_of_set_ups_has_no_figures_of_a_data_path(tmp_path: Path) -> None:
    metrics = trial(tmp_path, set_ups=restored(None)).measurements[0].metrics
    assert metrics["rtt_p50_ns"] == 5.0
    assert metrics["cpu_machine_ratio"] is not None
    for name in ("cpu_lab_ratio", "cpu_client_ratio", "cpu_tunnel_ratio", "wire_forward_bit_s"):
        assert metrics[name] is None
    assert trial(tmp_path).measurements[0].metrics["cpu_client_ratio"] is not None


def test_a_tunnel_that_stays_down_behind_its_set_ups_is_no_fault_of_the_trial(
    tmp_path: Path,
) -> None:
    checks = {
        check.name: check
        for check in trial(tmp_path, set_ups=restored("no answer")).validity.checks
    }
    assert "tunnel_up" not in checks
    assert checks["proved_again"].ok
    assert checks["proved_again"].message.endswith("again after the trial: no answer")


def test_a_tunnel_that_is_another_behind_its_set_ups_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = SimpleNamespace(verdict=ProofVerdict.SAW_WRONG, message="text in the clear")
    monkeypatch.setattr("tunnelmark.lab.session.trial.proofs_after", lambda *_, **__: [proof])
    check = failed(trial(tmp_path, set_ups=restored(None)), "proved_again")
    assert check.message.endswith("text in the clear")


@pytest.mark.parametrize("gateway", [False, True])
def test_the_programs_of_a_tunnel_that_is_set_up_again_are_those_looked_at(
    tmp_path: Path, *, gateway: bool
) -> None:
    def stand(pid: int) -> Any:
        processes = ((name, SimpleNamespace(pid=pid, argv=())) for name in ("client", "server"))
        up = SimpleNamespace(paths=(), processes=tuple(processes), negotiated=())
        return SimpleNamespace(own=SimpleNamespace(up=up), lab=made)

    made: Any = Lab(tmp_path)
    made.is_gateway = gateway
    made.client_host, made.server_host = Host(), Host()
    made.client_host.name, made.server_host.name = "client", "server"
    programs = [SimpleNamespace(pid=8, argv=())]
    made.client_host.spawned = made.server_host.spawned = programs
    made.place.limits = {"client": SimpleNamespace(applies=lambda _argv: True)}
    nothing: Any = None
    ups: Any = restored(None)
    ups.stand = stand(7)
    running = _Running(ups.stand, nothing, nothing, nothing, nothing, ups)
    assert running._groups()["tunnel"] == {7}
    ups.stand = stand(8)
    groups = running._groups()
    assert groups["tunnel"] == groups["tunnel on device"] == {8}
    assert groups["gateway" if gateway else "tunnel server"] == {8}


@pytest.mark.parametrize(
    ("has_schedule", "wanted"),
    [
        (True, ["begin", "cpu", "server", "begin", "client", "client"]),
        (False, ["begin", "cpu", "server", "client", "client"]),
    ],
)
def test_changes_of_the_link_begin_with_the_first_program_that_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_schedule: bool, wanted: list[str]
) -> None:
    order: list[str] = []
    start = CpuProbe.start

    def started(probe: Any, now_ns: int) -> None:
        order.append("cpu")
        start(probe, now_ns)

    monkeypatch.setattr(CpuProbe, "start", started)

    def run(made: Made, context: TrialContext) -> Outcome:
        order.append("server")
        for _ in range(2):
            context.begins()
            order.append("client")
        return made.outcome()

    monkeypatch.setattr(Made, "run", run)
    monkeypatch.setattr(Lab, "link", SimpleNamespace(has_schedule=has_schedule))
    trial(tmp_path, lab={"begin": lambda: order.append("begin")})
    assert order == wanted


def test_what_breaks_while_the_tunnel_is_restored_is_a_fault(tmp_path: Path) -> None:
    broken = restored(None)
    broken.restore = breaks(LabError("ip is gone"))
    assert failed(trial(tmp_path, set_ups=broken), "set_ups").message == "ip is gone"
