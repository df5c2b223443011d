//go:build !linux

package rawbench

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
)

// Endpoint is where one side of a bare measurement opens its socket.
type Endpoint struct {
	NetNS int
	Addr  netip.AddrPort
	CPU   int
}

var errNotLinux = fmt.Errorf("rawbench: bare UDP %w on %s: it needs Linux", errors.ErrUnsupported, runtime.GOOS)

// Stream fails: the bare measurements are written for Linux only.
func Stream(tx, rx Endpoint, cfg StreamConfig) (StreamResult, error) {
	return StreamResult{}, errNotLinux
}

// PingPong fails: the bare measurements are written for Linux only.
func PingPong(a, b Endpoint, cfg PingPongConfig) (PingPongResult, error) {
	return PingPongResult{}, errNotLinux
}

func yield() { runtime.Gosched() }

func onCPU(_ int, f func() error) error { return f() }
