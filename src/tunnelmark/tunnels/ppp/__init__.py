"""PPP, as the tunnels that carry it use it: pppd started, its calls, its log, what was agreed."""
