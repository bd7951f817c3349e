// The program of Tunnelmark's tunnel "tailscale" beside tailscaled: control server, relay (DERP) and STUN server on one address.
//
// Tailscale's own modules do the protocols, all of them: the control server is the one of its integration tests, the relay is
// that of derper. This program gives them an address, says who may join, and pairs the nodes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

type options struct {
	address        netip.Addr
	port, stunPort uint
	joinKey        string
	certificate    string
	pairs          pairs
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("tunnelmark-tailscale-control: ")
	if err := run(os.Args[1:]); err != nil {
		log.Fatalf("error: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

func run(words []string) error {
	if len(words) == 1 && words[0] == "--version" {
		fmt.Println(version())
		return nil
	}
	chosen, err := parse(words)
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
	failed := make(chan error, 2)
	if err := start(ctx, chosen, failed); err != nil {
		return err
	}
	log.Printf("listening on %s: control and DERP on TCP %d, STUN on UDP %d", chosen.address, chosen.port, chosen.stunPort)
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

func parse(words []string) (*options, error) {
	chosen, keyFile := &options{}, ""
	set := flag.NewFlagSet("tunnelmark-tailscale-control", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.TextVar(&chosen.address, "address", netip.Addr{}, "IP `address` to listen on, which is also named to the nodes")
	set.UintVar(&chosen.port, "port", 0, "TCP `port` of control server and relay")
	set.UintVar(&chosen.stunPort, "stun", 0, "UDP `port` of the STUN server")
	set.StringVar(&keyFile, "join-key", "", "`file` with the key that a node must have to join")
	set.StringVar(&chosen.certificate, "certificate", "", "`file` to write, with the certificate that the nodes must trust")
	set.Var(&chosen.pairs, "pair", "two nodes that see each other, `name=address,name=address`; may be repeated")
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
		return nil, fmt.Errorf("-%s must be set, as all options", name)
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("%q is not an option", set.Arg(0))
	}
	for _, port := range []uint{chosen.port, chosen.stunPort} {
		if port < 1 || port > 65535 {
			return nil, fmt.Errorf("a port is %d, must be 1 to 65535", port)
		}
	}
	text, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	// Tailscale's control server asks for no key where this is empty.
	if chosen.joinKey = strings.TrimSpace(string(text)); chosen.joinKey == "" {
		return nil, fmt.Errorf("%s is empty: anyone could join", keyFile)
	}
	return chosen, nil
}

func version() string {
	module := "an unknown version"
	info, _ := debug.ReadBuildInfo() // of a build with modules, as this is
	for _, one := range info.Deps {
		if one.Path == "tailscale.com" {
			module = strings.TrimPrefix(one.Version, "v")
		}
	}
	return fmt.Sprintf("tunnelmark-tailscale-control with tailscale.com %s, %s", module, runtime.Version())
}
