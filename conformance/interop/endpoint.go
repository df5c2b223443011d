package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// End is one of the two devices.
type End struct {
	Name string // for example "softroce" or "rxe of Linux 6.12"
	// Devices and Addrs are the device and its address for each family; the device may be
	// the same. Missing families are not tested.
	Devices map[Family]verbs.Context
	Addrs   map[Family]netip.Addr
	// Lacks gives the reason why the device does not support an operation, if its
	// capabilities do not show it.
	Lacks map[string]string
	// Objects counts the objects on the device, by kind; nil if it cannot.
	Objects func(context.Context) (map[string]int, error)
}

// endpoint is a device with its address of one family.
type endpoint struct {
	*End
	Device  verbs.Context
	who     Side
	addr    netip.Addr
	gid     uint8 // index of addr in the GID table
	attr    verbs.DeviceAttr
	port    verbs.PortAttr
	timeout time.Duration
}

// newEndpoint returns the endpoint of a side for an address family. Its port must be active.
func newEndpoint(e *End, who Side, family Family, timeout time.Duration) (s *endpoint, err error) {
	s = &endpoint{End: e, Device: e.Devices[family], who: who, addr: e.Addrs[family], timeout: timeout}
	if s.attr, err = s.Device.QueryDevice(); err != nil {
		return nil, s.verbError("query the device", err)
	}
	if s.port, err = s.Device.QueryPort(1); err != nil {
		return nil, s.verbError("query the port", err)
	}
	if s.port.State != verbs.PortActive {
		return nil, s.mismatch("its port is not active")
	}
	if s.isIWARP() {
		return s, nil
	}
	s.gid, err = gidIndex(s.Device, s.port.GIDs, s.addr)
	return s, s.verbError("find its address "+s.addr.String(), err)
}

// isIWARP reports whether the device is an iWARP device.
func (s *endpoint) isIWARP() bool { return s.Device.Info().Transport == verbs.TransportIWARP }

// gidIndex returns the index of an address's RoCEv2 entry in the GID table.
func gidIndex(dev verbs.Context, n int, addr netip.Addr) (uint8, error) {
	for i := range n {
		e, err := dev.QueryGID(1, i)
		switch {
		case errors.Is(err, verbs.ErrNotFound):
		case err != nil:
			return 0, err
		case e.Type == verbs.GIDTypeRoCEv2 && e.GID.Addr() == addr:
			return uint8(i), nil
		}
	}
	return 0, fmt.Errorf("%w in the table of GIDs", verbs.ErrNotFound)
}

// verbError describes an error of a verb, or returns nil.
func (s *endpoint) verbError(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s (%s) could not %s: %w", s.who, s.Name, what, err)
}

// mismatch returns an error about an unexpected result.
func (s *endpoint) mismatch(format string, args ...any) error {
	return fmt.Errorf("%s (%s): %w", s.who, s.Name, fmt.Errorf(format, args...))
}

// access returns all access rights that the device supports.
func (s *endpoint) access() verbs.Access {
	a := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	if s.attr.Caps.Has(verbs.CapAtomics) {
		a |= verbs.AccessRemoteAtomic
	}
	if s.attr.Caps.Has(verbs.CapFlush) {
		a |= verbs.AccessFlushGlobal
	}
	return a
}

// sync makes writes of the device visible: memory without a completion may be on another
// host.
func (s *endpoint) sync() error {
	_, err := s.Device.QueryPort(1)
	return s.verbError("query the port", err)
}
