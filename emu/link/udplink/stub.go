//go:build !linux

package udplink

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Link cannot be opened on this system.
type Link struct{}

var (
	_ link.Waiter    = (*Link)(nil)
	_ link.GroupLink = (*Link)(nil)
)

// Open fails: the package supports Linux only.
func Open(Config) (*Link, error) {
	return nil, fmt.Errorf("udplink: %w on %s: it needs Linux; use a simulated link here", errors.ErrUnsupported, runtime.GOOS)
}

// The methods below let dependants build. They are never called.

func (*Link) Send(mono.Time, []link.Datagram) (int, error) { return 0, link.ErrClosed }
func (*Link) Recv(mono.Time, []link.Datagram) (int, error) { return 0, link.ErrClosed }
func (*Link) MTU() int                                     { return 0 }
func (*Link) Features() link.Features                      { return link.Features{} }
func (*Link) Info() Info                                   { return Info{} }
func (*Link) Stats() Stats                                 { return Stats{} }
func (*Link) Close() error                                 { return link.ErrClosed }
func (*Link) WaitReadable(time.Duration) error             { return link.ErrClosed }
func (*Link) Wake()                                        {}
func (*Link) Join(netip.Addr) error                        { return link.ErrClosed }
func (*Link) Leave(netip.Addr) error                       { return link.ErrClosed }
