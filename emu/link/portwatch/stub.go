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

// Open fails: it asks Linux's rtnetlink.
func Open([]netip.Addr) (*Watch, error) {
	return nil, fmt.Errorf("portwatch: %w on %s: it needs Linux", errors.ErrUnsupported, runtime.GOOS)
}

// The methods below let dependants build. Nobody can call them: there is no Watch.

func (*Watch) Start(link.PortObserver) {}
func (*Watch) Close() error            { return link.ErrClosed }
