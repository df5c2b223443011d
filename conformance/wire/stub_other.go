//go:build !linux

package wire

import (
	"errors"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
)

// unavailable is a wire on a system without it. All methods fail or do nothing.
type unavailable struct{}

var errNotLinux = errors.New("wires need Linux")

func (unavailable) Send([]byte) error { return errNotLinux }

func (unavailable) Recv(time.Duration) (conformance.Frame, error) {
	return conformance.Frame{}, errNotLinux
}

func (unavailable) Join(netip.Addr) error { return errNotLinux }
func (unavailable) Epoch() time.Time      { return time.Time{} }
func (unavailable) Discard()              {}
func (unavailable) Close() error          { return nil }

// Ethernet is not available.
type Ethernet struct{ unavailable }

// OpenEthernet fails: the wire needs Linux.
func OpenEthernet(EthernetConfig) (*Ethernet, error) { return nil, errNotLinux }

// UDP is not available.
type UDP struct{ unavailable }

// OpenUDP fails: the wire needs Linux.
func OpenUDP(UDPConfig) (*UDP, error) { return nil, errNotLinux }

// DisableOffloads fails: it needs Linux.
func DisableOffloads(string) error { return errNotLinux }
