"""What the machine was."""

import pytest

from tunnelmark.lab.environment import interrupt_time

WITH = "CONFIG_IRQ_TIME_ACCOUNTING"
SYMBOLS = "0000000000000000 T schedule\n0000000000000000 T other_{}\n"


@pytest.mark.parametrize(
    ("config", "symbols", "said"),
    [
        (f"CONFIG_BPF=y\n{WITH}=y\n", "", f"apart from processes ({WITH})"),
        (f"# {WITH} is not set\n", "", f"in the process that is interrupted (without {WITH})"),
        ("", SYMBOLS + "0 T irqtime_account_irq\n", f"apart from processes ({WITH})"),
        ("", SYMBOLS, f"in the process that is interrupted (without {WITH})"),
        ("", "", ""),
    ],
)
def test_in_whose_name_interrupts_count(config: str, symbols: str, said: str) -> None:
    assert interrupt_time(config, symbols) == said
