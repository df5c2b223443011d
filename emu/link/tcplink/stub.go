//go:build !linux

package tcplink

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Net cannot be opened on this system.
type Net struct{}

var _ link.StreamWaiter = (*Net)(nil)

// Open fails: the package supports Linux only.
func Open(Config) (*Net, error) {
	return nil, fmt.Errorf("tcplink: %w on %s: it needs Linux; use simulated streams here", errors.ErrUnsupported, runtime.GOOS)
}

// The methods below let dependants build. They are never called.

func (*Net) Dial(mono.Time, netip.AddrPort, netip.AddrPort) (link.StreamLink, error) {
	return nil, link.ErrClosed
}

func (*Net) Listen(netip.AddrPort, int) (link.StreamListener, error) {
	return nil, link.ErrClosed
}
func (*Net) Ready([]link.StreamReady) int  { return 0 }
func (*Net) WaitReady(time.Duration) error { return link.ErrClosed }
func (*Net) Wake()                         {}
func (*Net) Stats() Stats                  { return Stats{} }
func (*Net) Close() error                  { return link.ErrClosed }
