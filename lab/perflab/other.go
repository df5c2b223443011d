//go:build !linux

package perflab

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/fabrictest/fabrictest/emu/link/udplink/rawbench"
)

var errNotLinux = fmt.Errorf("bare TCP is measured by Linux's system calls: %w on %s", errors.ErrUnsupported, runtime.GOOS)

// RawTCPStream fails: the measurements are written for Linux only.
func RawTCPStream(_, _ rawbench.Endpoint, _ RawTCPStreamConfig) (float64, error) {
	return 0, errNotLinux
}

// RawTCPPingPong fails: the measurements are written for Linux only.
func RawTCPPingPong(_, _ rawbench.Endpoint, _ RawTCPPingPongConfig) (float64, error) {
	return 0, errNotLinux
}
