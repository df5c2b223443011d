package kernel

import (
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/lab/daemon"
)

// openSocket opens a socket in the lab's namespace and sends it to the client,
// which may have no right to enter the namespace.
func (s *server) openSocket(c *daemon.Client, r *request) error {
	var file *os.File
	err := s.lab.ns.Do(func() (err error) {
		file, err = newSocket(r)
		return err
	})
	if err != nil {
		return err
	}
	defer file.Close()
	return c.Reply(nil, file)
}

// fileSocket is implemented by all sockets of package net.
type fileSocket interface {
	File() (*os.File, error)
	Close() error
}

func newSocket(r *request) (*os.File, error) {
	if r.Network == packetNetwork {
		return newPacketSocket(r.Address)
	}
	var socket any
	var err error
	switch {
	case !r.Listen:
		d := net.Dialer{Timeout: dialTimeout}
		socket, err = d.Dial(r.Network, r.Address)
	case strings.HasPrefix(r.Network, "tcp"):
		socket, err = net.Listen(r.Network, r.Address)
	default:
		socket, err = net.ListenPacket(r.Network, r.Address)
	}
	if err != nil {
		return nil, err
	}
	f, ok := socket.(fileSocket)
	if !ok {
		return nil, fmt.Errorf("a socket of network %s has no descriptor", r.Network)
	}
	defer f.Close()
	return f.File()
}

// newPacketSocket opens a packet socket on an interface in promiscuous mode.
func newPacketSocket(device string) (*os.File, error) {
	fail := func(err error) error { return fmt.Errorf("packet socket on %s: %w", device, err) }
	ifc, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fail(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fail(err)
	}
	file := os.NewFile(uintptr(fd), device)
	all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8) // in network byte order
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifc.Index}); err != nil {
		file.Close()
		return nil, fail(err)
	}
	promiscuous := &unix.PacketMreq{Ifindex: int32(ifc.Index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, promiscuous); err != nil {
		file.Close()
		return nil, fail(err)
	}
	return file, nil
}
