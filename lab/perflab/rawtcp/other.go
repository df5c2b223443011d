//go:build !linux

package rawtcp

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/fabrictest/fabrictest/emu/link/udplink/rawbench"
)

var errNotLinux = fmt.Errorf("bare TCP is measured by Linux's system calls: %w on %s", errors.ErrUnsupported, runtime.GOOS)

// Stream fails: the measurements are written for Linux only.
func Stream(_, _ rawbench.Endpoint, _ StreamConfig) (float64, error) { return 0, errNotLinux }

// PingPong fails: the measurements are written for Linux only.
func PingPong(_, _ rawbench.Endpoint, _ PingPongConfig) (float64, error) { return 0, errNotLinux }
