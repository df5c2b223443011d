//go:build !linux

package rawbench

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
)

// Endpoint says where a measurement of bare sockets opens one of them.
type Endpoint struct {
	NetNS int
	Addr  netip.AddrPort
	CPU   int
}

var errNotLinux = fmt.Errorf("rawbench: bare UDP %w on %s: it needs Linux", errors.ErrUnsupported, runtime.GOOS)

// Stream fails: bare sockets are supported on Linux only.
func Stream(tx, rx Endpoint, cfg StreamConfig) (StreamResult, error) {
	return StreamResult{}, errNotLinux
}

// PingPong fails: bare sockets are supported on Linux only.
func PingPong(a, b Endpoint, cfg PingPongConfig) (PingPongResult, error) {
	return PingPongResult{}, errNotLinux
}

func yield() { runtime.Gosched() }

func onCPU(_ int, f func() error) error { return f() }
