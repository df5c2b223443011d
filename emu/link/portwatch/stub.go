//go:build !linux

package portwatch

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"

	"github.com/fabrictest/fabrictest/emu/link"
)

// Watch cannot be opened on this system.
type Watch struct{}

// Open fails: rtnetlink is part of Linux.
func Open([]netip.Addr) (*Watch, error) {
	return nil, fmt.Errorf("portwatch: %w on %s: it needs Linux", errors.ErrUnsupported, runtime.GOOS)
}

// The methods below let dependants build. They are never called.

func (*Watch) Start(link.PortObserver) {}
func (*Watch) Close() error            { return link.ErrClosed }
