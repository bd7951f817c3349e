// The program of Tunnelmark's tunnel "masque": IP packets of a TUN device through HTTP/3 (CONNECT-IP, RFC 9484).
//
// quic-go's libraries do the protocol, all of it. This program opens the device and moves packets between the two.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

type options struct {
	device                     string
	mtu, port                  int
	tls                        files
	address, assign, advertise netip.Addr
	outer                      *net.UDPAddr
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("tunnelmark-masque: ")
	if err := run(os.Args[1:]); err != nil {
		log.Fatalf("error: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

func run(words []string) error {
	if len(words) == 1 && words[0] == "--version" {
		fmt.Println(version())
		return nil
	}
	modes := map[string]func(context.Context, *options, *device) error{"server": serve, "client": dial}
	if len(words) == 0 || modes[words[0]] == nil {
		return errors.New("the first argument must be server, client or --version")
	}
	chosen, err := parse(words[0], words[1:])
	if err != nil {
		return err
	}
	// The kernel keeps this wish for one thread, which must stay.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return fmt.Errorf("cannot follow the end of the parent: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	device, err := openDevice(chosen.device, chosen.mtu)
	if err != nil {
		return fmt.Errorf("device %s with MTU %d: %w", chosen.device, chosen.mtu, err)
	}
	defer device.Close()
	if err := modes[words[0]](ctx, chosen, device); ctx.Err() == nil {
		return err
	}
	return nil
}

func parse(mode string, words []string) (*options, error) {
	chosen := &options{}
	set := flag.NewFlagSet(mode, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&chosen.device, "device", "", "`name` of the TUN device to make")
	set.IntVar(&chosen.mtu, "mtu", 0, "its MTU in `bytes`")
	set.StringVar(&chosen.tls.certificate, "certificate", "", "`file` with the certificate of this end")
	set.StringVar(&chosen.tls.key, "key", "", "`file` with its key")
	set.StringVar(&chosen.tls.authority, "ca", "", "`file` with the certificate of the authority that signed the peer's")
	set.StringVar(&chosen.tls.peer, "peer", "", "common `name` in the certificate of the peer")
	set.TextVar(&chosen.address, "address", netip.Addr{}, "IP `address` of the server, to listen on or to connect to")
	set.IntVar(&chosen.port, "port", 0, "its UDP `port`")
	if mode == "server" {
		set.TextVar(&chosen.assign, "assign", netip.Addr{}, "IP `address` inside that is assigned to the client")
		set.TextVar(&chosen.advertise, "advertise", netip.Addr{}, "IP `address` inside to which a route is advertised")
	}
	if err := set.Parse(words); errors.Is(err, flag.ErrHelp) {
		set.SetOutput(os.Stdout)
		set.PrintDefaults()
		os.Exit(0)
	} else if err != nil {
		return nil, err
	}
	missing := map[string]bool{}
	set.VisitAll(func(one *flag.Flag) { missing[one.Name] = true })
	set.Visit(func(one *flag.Flag) { delete(missing, one.Name) })
	for name := range missing {
		return nil, fmt.Errorf("-%s must be set, as all options of %s", name, mode)
	}
	switch {
	case set.NArg() > 0:
		return nil, fmt.Errorf("%q is not an option", set.Arg(0))
	case chosen.mtu < leastMTU || chosen.mtu > mostMTU:
		return nil, fmt.Errorf("-mtu is %d, must be %d to %d", chosen.mtu, leastMTU, mostMTU)
	case chosen.port < 1 || chosen.port > 65535:
		return nil, fmt.Errorf("-port is %d, must be 1 to 65535", chosen.port)
	}
	chosen.outer = net.UDPAddrFromAddrPort(netip.AddrPortFrom(chosen.address, uint16(chosen.port)))
	return chosen, nil
}

func version() string {
	found := map[string]string{}
	info, _ := debug.ReadBuildInfo() // of a build with modules, as this is
	for _, module := range info.Deps {
		found[module.Path] = strings.TrimPrefix(module.Version, "v")
	}
	return fmt.Sprintf("tunnelmark-masque with connect-ip-go %s, quic-go %s, %s",
		found["github.com/quic-go/connect-ip-go"], found["github.com/quic-go/quic-go"], runtime.Version())
}
