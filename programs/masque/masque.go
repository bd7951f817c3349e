package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/quic-go/connect-ip-go"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/yosida95/uritemplate/v3"
)

const (
	// What both ends call the server. No name server knows it (RFC 6761 section 6.2).
	authority = "masque.tunnelmark.test"
	// What connect-ip-go chooses (defaultInitialPacketSize), and quic-go's largest (protocol.MaxPacketBufferSize).
	usualPacket, longestQUIC = 1350, 1452
	// quic-go reckons with 37 bytes around a datagram: flags, the longest connection ID, tag. In it are the numbers
	// of the stream (RFC 9297) and of the context (RFC 9484).
	numbers, around = 2, 39
	// The least is what IPv4 must carry (RFC 791 section 3.2).
	leastMTU, mostMTU = 576, longestQUIC - around
	// Half of quic-go's idle timeout, after which a connection that carries nothing would end.
	keepAlive, dialLimit = 15 * time.Second, 20 * time.Second
)

var template = uritemplate.MustNew("https://" + authority + "/connect-ip")

type files struct{ certificate, key, authority, peer string }

// serve serves one client; a later one takes the device over.
func serve(ctx context.Context, chosen *options, device *device) error {
	config, err := chosen.tls.config(x509.ExtKeyUsageClientAuth)
	if err != nil {
		return err
	}
	listener, err := quic.ListenAddr(chosen.outer.String(), config, quicConfig(chosen.mtu))
	if err != nil {
		return err
	}
	defer listener.Close()
	var current peer
	handler := func(w http.ResponseWriter, r *http.Request) {
		log.Printf("client %s is gone: %s", r.RemoteAddr, tunnel(w, r, chosen, device, &current))
	}
	server := &http3.Server{EnableDatagrams: true, Handler: http.HandlerFunc(handler)}
	ctx, fail := context.WithCancelCause(ctx)
	go func() { fail(device.send(&current)) }()
	log.Printf("listening on %s", listener.Addr())
	for {
		conn, err := listener.Accept(ctx)
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		log.Printf("client %s: %s", conn.RemoteAddr(), negotiated(conn))
		go server.ServeQUICConn(conn)
	}
}

func tunnel(w http.ResponseWriter, r *http.Request, chosen *options, device *device, current *peer) error {
	request, err := connectip.ParseProxyRequest(r, template)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return err
	}
	conn, err := new(connectip.Proxy).Proxy(w, request)
	if err != nil {
		return err
	}
	defer conn.Close()
	client := netip.PrefixFrom(chosen.assign, chosen.assign.BitLen())
	route := connectip.IPRoute{StartIP: chosen.advertise, EndIP: chosen.advertise}
	err = errors.Join(conn.AssignAddresses([]netip.Prefix{client}), conn.AdvertiseRoute([]connectip.IPRoute{route}))
	if err != nil {
		return err
	}
	current.Store(conn)
	defer current.CompareAndSwap(conn, nil)
	log.Printf("connected: assigned %s, advertised %s", client, chosen.advertise)
	return device.receive(conn)
}

// dial connects once. A connection that is lost ends the program: the library does not connect again.
func dial(ctx context.Context, chosen *options, device *device) error {
	config, err := chosen.tls.config(x509.ExtKeyUsageServerAuth)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	socket, err := net.ListenUDP("udp", nil)
	if err != nil {
		return err
	}
	// By a transport, as the server: connection IDs then have one length both ways.
	outer, err := (&quic.Transport{Conn: socket}).Dial(limited, chosen.outer, config, quicConfig(chosen.mtu))
	if err != nil {
		return err
	}
	defer outer.CloseWithError(0, "")
	log.Printf("server %s: %s", outer.RemoteAddr(), negotiated(outer))
	proxied, incapable := new(connectip.Transport).NewClientConn(outer)
	request, err := connectip.NewRequest(limited, template)
	if err := errors.Join(incapable, err); err != nil {
		return err
	}
	conn, _, err := proxied.Dial(request)
	if err != nil {
		return err
	}
	assigned, unassigned := conn.ReceiveAddressAssignment(limited)
	routes, unrouted := conn.Routes(limited)
	if err := errors.Join(unassigned, unrouted); err != nil {
		return fmt.Errorf("no address or route from the server: %w", err)
	}
	log.Printf("connected: assigned %v, advertised %v", assigned, routes)
	var current peer
	current.Store(conn)
	ctx, fail := context.WithCancelCause(ctx)
	go func() { fail(device.receive(conn)) }()
	go func() { fail(device.send(&current)) }()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-outer.Context().Done():
		return fmt.Errorf("connection lost: %w", context.Cause(outer.Context()))
	}
}

func quicConfig(mtu int) *quic.Config {
	// A packet as long as the MTU fits from the first one on, not only once the path's MTU is found.
	size := max(usualPacket, mtu+around)
	return &quic.Config{EnableDatagrams: true, InitialPacketSize: uint16(size), KeepAlivePeriod: keepAlive}
}

// config makes each end show its certificate, and hold the peer's to the authority and to the peer's name.
func (f *files) config(usage x509.ExtKeyUsage) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(f.certificate, f.key)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(f.authority)
	if err != nil {
		return nil, err
	}
	wanted := x509.VerifyOptions{Roots: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{usage}}
	if !wanted.Roots.AppendCertsFromPEM(text) {
		return nil, errors.New(f.authority + " has no certificate")
	}
	verify := func(state tls.ConnectionState) error {
		shown := state.PeerCertificates[0]
		if shown.Subject.CommonName != f.peer {
			return fmt.Errorf("the peer is %q, must be %q", shown.Subject.CommonName, f.peer)
		}
		_, err := shown.Verify(wanted)
		return err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{own},
		NextProtos:   []string{http3.NextProtoH3},
		ServerName:   authority,
		ClientAuth:   tls.RequireAnyClientCert,
		// Certificates of a run have a common name alone, which crypto/tls does not look at.
		InsecureSkipVerify: true,
		VerifyConnection:   verify,
	}, nil
}

func negotiated(conn *quic.Conn) string {
	state := conn.ConnectionState()
	// Longer than any path carries: nothing is sent, and the error names what fits.
	var tooLarge *quic.DatagramTooLargeError
	if !errors.As(conn.SendDatagram(make([]byte, longestPacket)), &tooLarge) {
		return "no datagrams"
	}
	return fmt.Sprintf("%s, suite %s, group %s, QUIC %s, IP packets of up to %d bytes", tls.VersionName(state.TLS.Version),
		tls.CipherSuiteName(state.TLS.CipherSuite), state.TLS.CurveID, state.Version, tooLarge.MaxDatagramPayloadSize-numbers)
}
