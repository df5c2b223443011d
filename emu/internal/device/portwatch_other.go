//go:build !linux

package device

import (
	"errors"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
)

// portWatch cannot be opened on this system: rtnetlink is part of Linux.
type portWatch struct{}

func openPortWatch([]netip.Addr) (*portWatch, error) { return nil, errors.ErrUnsupported }

func (*portWatch) Start(link.PortObserver) {}
func (*portWatch) Close() error            { return link.ErrClosed }
