//go:build !linux

package etherwire

import (
	"errors"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
)

// Wire is not available.
type Wire struct{}

var errNotLinux = errors.New("packet sockets need Linux")

// Open fails.
func Open(Config) (*Wire, error) { return nil, errNotLinux }

// DisableOffloads fails.
func DisableOffloads(string) error { return errNotLinux }

// Send fails.
func (*Wire) Send([]byte) error { return errNotLinux }

// Recv fails.
func (*Wire) Recv(time.Duration) (conformance.Frame, error) { return conformance.Frame{}, errNotLinux }

// Join fails.
func (*Wire) Join(netip.Addr) error { return errNotLinux }

// Epoch is the zero Time.
func (*Wire) Epoch() time.Time { return time.Time{} }

// Discard does nothing.
func (*Wire) Discard() {}

// Close does nothing.
func (*Wire) Close() error { return nil }
