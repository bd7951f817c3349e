"""What tinc says of itself, and where it is read wrongly if at all."""

from tunnelmark.tunnels.tinc import read_nodes

LIST = """\
Nodes:
 client at MYSELF cipher 0 digest 0 maclength 0 compression 0 options 0 status 0018 nexthop client
 server at 198.18.0.2 port 655 cipher {cipher} digest 672 maclength 4 compression 0 options 0
End of nodes.
"""


def test_the_last_list_counts_and_the_node_itself_does_not() -> None:
    log = "Ready\n" + LIST.format(cipher=91) + "Edges:\n" + LIST.format(cipher=427)
    assert read_nodes(log) == {
        "server": {"cipher": 427, "digest": 672, "MAC length": 4, "compression": 0}
    }


def test_a_list_that_is_not_there_or_not_finished_has_no_node() -> None:
    assert read_nodes("") == {}
    assert read_nodes("Nodes:\n server at 198.18.0.2 port 655 cipher 427 digest 672") == {}
    assert read_nodes("Nodes:\nEnd of nodes.\n") == {}


def test_a_node_with_numbers_beyond_belief_is_no_node() -> None:
    assert read_nodes(LIST.format(cipher="9" * 400)) == {}
