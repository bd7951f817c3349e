from tunnelmark.lab.mss_clamp import text


def test_a_size_is_set_only_where_the_offer_is_larger() -> None:
    rules = text(["tun0", "tun1", "tun0"], 1200)
    assert 'oifname { "tun0", "tun1" }' in rules
    assert "maxseg size > 1200 tcp option maxseg size set 1200" in rules
