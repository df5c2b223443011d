//go:build !linux

package perflab

import (
	"errors"
	"fmt"
	"runtime"
)

var errNotLinux = fmt.Errorf("bare sockets are measured by Linux's system calls: %w on %s", errors.ErrUnsupported, runtime.GOOS)

// RawTCPStream fails: the measurements are written for Linux only.
func RawTCPStream(_, _ RawEndpoint, _ RawTCPStreamConfig) (float64, error) {
	return 0, errNotLinux
}

// RawTCPPingPong fails: the measurements are written for Linux only.
func RawTCPPingPong(_, _ RawEndpoint, _ RawTCPPingPongConfig) (float64, error) {
	return 0, errNotLinux
}

// RawUDPStream fails: the measurements are written for Linux only.
func RawUDPStream(_, _ RawEndpoint, _ RawUDPStreamConfig) (RawUDPStreamResult, error) {
	return RawUDPStreamResult{}, errNotLinux
}

// RawUDPPingPong fails: the measurements are written for Linux only.
func RawUDPPingPong(_, _ RawEndpoint, _ RawUDPPingPongConfig) (RawUDPPingPongResult, error) {
	return RawUDPPingPongResult{}, errNotLinux
}

func yield() { runtime.Gosched() }

func onCPU(_ int, f func() error) error { return f() }
