package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"tailscale.com/derp/derpserver"
	"tailscale.com/net/stunserver"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
	"tailscale.com/types/logger"
)

const (
	regionID = 1
	// Never looked up: the nodes are given the address too.
	relayName = "relay.invalid"
	// Clocks of hosts differ.
	certificateSlack = 24 * time.Hour
	certificateLife  = 30 * 24 * time.Hour
)

// start starts all three servers. Control server and relay share a port, as they can share 443 on the Internet.
func start(ctx context.Context, chosen *options, failed chan<- error) error {
	certificate, err := selfSigned(chosen.address)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	if err := os.WriteFile(chosen.certificate, text, 0o600); err != nil {
		return err
	}
	stun := stunserver.New(ctx)
	if err := stun.Listen(at(chosen.address, chosen.stunPort)); err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}
	listener, err := tls.Listen("tcp", at(chosen.address, chosen.port), config)
	if err != nil {
		return err
	}
	relay := derpserver.New(key.NewNode(), logger.Discard)
	mux := http.NewServeMux()
	mux.Handle("/derp", derpserver.Handler(relay))
	// How a node that gets no answer by STUN measures the way here.
	mux.HandleFunc("/derp/probe", derpserver.ProbeHandler)
	mux.HandleFunc("/derp/latency-check", derpserver.ProbeHandler)
	mux.Handle("/", newControl(chosen, relayMap(chosen, certificate)))
	// A connection of HTTP/2 could not be taken over by either.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	server := &http.Server{Handler: mux, Protocols: protocols, ErrorLog: log.Default()}
	go func() { failed <- fmt.Errorf("STUN: %w", stun.Serve()) }()
	go func() { failed <- server.Serve(listener) }()
	return nil
}

// relayMap returns what names relay and STUN server to the nodes.
func relayMap(chosen *options, certificate tls.Certificate) *tailcfg.DERPMap {
	node := &tailcfg.DERPNode{
		Name:     "relay",
		RegionID: regionID,
		HostName: relayName,
		// The nodes accept this certificate and no other.
		CertName: fmt.Sprintf("sha256-raw:%x", sha256.Sum256(certificate.Certificate[0])),
		IPv4:     "none",
		IPv6:     "none",
		DERPPort: int(chosen.port),
		STUNPort: int(chosen.stunPort),
	}
	if chosen.address.Is4() {
		node.IPv4 = chosen.address.String()
	} else {
		node.IPv6 = chosen.address.String()
	}
	region := &tailcfg.DERPRegion{RegionID: regionID, RegionCode: "lab", RegionName: "lab", Nodes: []*tailcfg.DERPNode{node}}
	return &tailcfg.DERPMap{Regions: map[int]*tailcfg.DERPRegion{regionID: region}, OmitDefaultRegions: true}
}

func selfSigned(address netip.Addr) (tls.Certificate, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: relayName},
		// By the name a node knows the relay, by the address the control server.
		DNSNames:    []string{relayName},
		IPAddresses: []net.IP{address.AsSlice()},
		NotBefore:   now.Add(-certificateSlack),
		NotAfter:    now.Add(certificateLife),
		// It is the authority that the nodes trust, and has signed itself alone.
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	return tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: private}, err
}

func at(address netip.Addr, port uint) string {
	return netip.AddrPortFrom(address, uint16(port)).String()
}
