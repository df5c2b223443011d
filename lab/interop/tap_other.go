//go:build !linux

package interop

import (
	"errors"
	"net/netip"
)

// Tap sees all frames of one interface; only Linux has one.
type Tap struct{}

// OpenTap fails.
func OpenTap(netip.Addr) (*Tap, error) {
	return nil, errors.New("packets can be watched on Linux only")
}

// Feed does nothing.
func (*Tap) Feed(*Monitor) {}

// Close does nothing.
func (*Tap) Close() error { return nil }
