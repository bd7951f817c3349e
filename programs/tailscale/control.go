package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"tailscale.com/tailcfg"
	"tailscale.com/tstest/integration/testcontrol"
	"tailscale.com/types/key"
	"tailscale.com/types/logger"
)

const (
	domain = "tunnelmark.invalid"
	// A node gives up a connection that is silent for two minutes (control/controlclient, watchdogTimeout).
	keepAlive = 50 * time.Second
)

// place is what a node has in the network: an address inside, and the one node that it sees.
type place struct {
	address netip.Addr
	peer    string
}

// pairs are the places by name of node, in the form of an option.
type pairs map[string]place

func (p *pairs) String() string { return "" }

func (p *pairs) Set(text string) error {
	var names [2]string
	var addresses [2]netip.Addr
	halves := strings.Split(text, ",")
	if len(halves) != 2 {
		return errors.New("must be two nodes with a comma between them")
	}
	for number, half := range halves {
		name, address, _ := strings.Cut(half, "=")
		parsed, err := netip.ParseAddr(address)
		if err != nil {
			return fmt.Errorf("address of %q: %w", name, err)
		}
		names[number], addresses[number] = name, parsed
	}
	if *p == nil {
		*p = pairs{}
	}
	for number, name := range names {
		if _, ok := (*p)[name]; ok || name == "" || names[0] == names[1] {
			return fmt.Errorf("%q is not a name, or there twice", name)
		}
		(*p)[name] = place{addresses[number], names[1-number]}
	}
	return nil
}

// tailnet answers the map requests of the nodes.
//
// The control server of Tailscale's tests would hand out addresses in the order in which nodes join, and show every node to every other.
type tailnet struct {
	control *testcontrol.Server
	relay   *tailcfg.DERPMap
	pairs   pairs

	mu      sync.Mutex
	nodes   map[string]key.NodePublic
	waiting map[string]chan struct{}
}

func newControl(chosen *options, relay *tailcfg.DERPMap) http.Handler {
	network := &tailnet{
		relay:   relay,
		pairs:   chosen.pairs,
		nodes:   map[string]key.NodePublic{},
		waiting: map[string]chan struct{}{},
	}
	network.control = &testcontrol.Server{
		Logf:            logger.Discard, // it would name the nodes' keys
		DERPMap:         relay,
		RequireAuthKey:  chosen.joinKey,
		ExplicitBaseURL: "https://" + at(chosen.address, chosen.port),
		AltMapStream:    network.answer,
		// Neither certificates for names nor file sharing, which it would allow.
		DefaultNodeCapabilities: &tailcfg.NodeCapMap{},
	}
	return network.control
}

// answer takes what a node says of itself, or says until the node hangs up what it and its peer are.
func (t *tailnet) answer(ctx context.Context, w testcontrol.MapStreamWriter, request *tailcfg.MapRequest) {
	node := t.control.Node(request.NodeKey)
	if node == nil {
		return
	}
	name := node.Name
	own, ok := t.pairs[name]
	if !ok {
		log.Printf("error: node %q is in no pair", name)
		return
	}
	if !request.Stream {
		t.update(node, request)
		t.wake(own.peer)
		t.wake(name)
		return
	}
	news := make(chan struct{}, 1)
	t.mu.Lock()
	t.nodes[name], t.waiting[name] = node.Key, news
	t.mu.Unlock()
	log.Printf("node %s joined as %s", name, own.address)
	t.wake(own.peer)
	for {
		message := t.network(name)
		if message == nil || w.SendMapMessage(message) != nil {
			return
		}
		for heard := false; !heard; {
			select {
			case <-ctx.Done():
				return
			case <-news:
				heard = true
			case <-time.After(keepAlive):
				if w.SendMapMessage(&tailcfg.MapResponse{KeepAlive: true}) != nil {
					return
				}
			}
		}
	}
}

// update keeps where a node can be reached. A node of this version says so in a request of its own, never in the one that waits.
func (t *tailnet) update(node *tailcfg.Node, request *tailcfg.MapRequest) {
	if request.ReadOnly {
		return
	}
	node.Endpoints, node.DiscoKey, node.Cap = request.Endpoints, request.DiscoKey, request.Version
	if request.Hostinfo != nil {
		node.Hostinfo = request.Hostinfo.View()
	}
	node.HomeDERP = regionID
	t.control.UpdateNode(node)
}

func (t *tailnet) wake(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case t.waiting[name] <- struct{}{}:
	default: // nobody waits, or news wait already
	}
}

// network returns what the node of a name is to know: itself, its peer if that has joined, the relay, and that all may pass.
func (t *tailnet) network(name string) *tailcfg.MapResponse {
	own := t.placed(name)
	if own == nil {
		return nil
	}
	own.CapMap = tailcfg.NodeCapMap{
		tailcfg.NodeAttrDisableCaptivePortalDetection: nil,
		tailcfg.NodeAttrDisableUPnP:                   nil,
	}
	now := time.Now()
	message := &tailcfg.MapResponse{
		Node:            own,
		Peers:           []*tailcfg.Node{},
		DERPMap:         t.relay,
		Domain:          domain,
		PacketFilter:    tailcfg.FilterAllowAll,
		CollectServices: "false",
		ControlTime:     &now,
		UserProfiles:    []tailcfg.UserProfile{profile(own)},
	}
	if peer := t.placed(t.pairs[name].peer); peer != nil {
		peer.Online = new(true)
		message.Peers = append(message.Peers, peer)
		message.UserProfiles = append(message.UserProfiles, profile(peer))
	}
	return message
}

// placed returns the node of a name with its address inside, or nil where none has joined.
func (t *tailnet) placed(name string) *tailcfg.Node {
	t.mu.Lock()
	which := t.nodes[name]
	t.mu.Unlock()
	node := t.control.Node(which)
	if node == nil {
		return nil
	}
	address := t.pairs[name].address
	node.Addresses = []netip.Prefix{netip.PrefixFrom(address, address.BitLen())}
	node.AllowedIPs = node.Addresses
	return node
}

func profile(node *tailcfg.Node) tailcfg.UserProfile {
	return tailcfg.UserProfile{ID: node.User, LoginName: node.Name + "@" + domain, DisplayName: node.Name}
}
