package main

import (
	"errors"
	"os"
	"sync/atomic"

	"github.com/quic-go/connect-ip-go"
	"golang.org/x/sys/unix"
)

const longestPacket = 1 << 16

// A peer is the connection to it that there is at the moment, if any.
type peer = atomic.Pointer[connectip.Conn]

// A device is a TUN device: each read and each write is one IP packet.
type device struct{ *os.File }

func openDevice(name string, mtu int) (*device, error) {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	// Not blocking, so that closing it ends a read.
	tun, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(tun, unix.TUNSETIFF, request); err != nil {
		return nil, err
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(socket)
	request.SetUint32(uint32(mtu))
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFMTU, request); err != nil {
		return nil, err
	}
	return &device{os.NewFile(uintptr(tun), name)}, nil
}

// send moves packets from the device to the peer, until the device is closed.
func (d *device) send(current *peer) error {
	buffer := make([]byte, longestPacket)
	for {
		length, err := d.Read(buffer)
		if err != nil {
			return err
		}
		conn := current.Load()
		if conn == nil {
			continue
		}
		// What does not fit into a datagram is answered with ICMP, by the library. An error is that of a connection that
		// is gone, which receive notices too: a server waits for the next client.
		reply, err := conn.WritePacket(buffer[:length])
		if err != nil || reply == nil {
			continue
		}
		if err := d.put(reply); err != nil {
			return err
		}
	}
}

// receive moves packets from a peer to the device, until one of them is gone.
func (d *device) receive(conn *connectip.Conn) error {
	buffer := make([]byte, longestPacket)
	for {
		length, err := conn.ReadPacket(buffer)
		if err != nil {
			return err
		}
		if err := d.put(buffer[:length]); err != nil {
			return err
		}
	}
}

// put loses what arrives while the device is not up (EIO), as any interface does, and what is no packet (EINVAL).
func (d *device) put(packet []byte) error {
	if _, err := d.Write(packet); !errors.Is(err, unix.EIO) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}
