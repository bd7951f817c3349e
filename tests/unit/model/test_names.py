"""Names that no other has."""

from tunnelmark.model.names import unique_name


def test_no_name_is_given_twice() -> None:
    """With four random digits two of a thousand coincide as good as always."""
    assert len({unique_name("sshd") for _ in range(1000)}) == 1000
