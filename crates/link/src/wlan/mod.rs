//! IEEE 802.11 airtime as a state machine: one shared half-duplex medium, any number of stations.
