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
	Name string // for people: softroce, rxe of Linux 6.12
	// Devices are those that have an address of a family, which may be the same, and
	// Addrs the addresses. A family that is missing is not tried.
	Devices map[Family]verbs.Context
	Addrs   map[Family]netip.Addr
	// Lacks says of operations, by name, why the device cannot ask for them or serve
	// them, where its capabilities do not.
	Lacks map[string]string
	// Objects counts what exists on the device now, by kind; nil where nobody can.
	Objects func(context.Context) (map[string]int, error)
}

// side is an end at work, over one family.
type side struct {
	*End
	Device   verbs.Context
	who      Side
	addr     netip.Addr
	gid      uint8 // where that is in the device's table
	attr     verbs.DeviceAttr
	port     verbs.PortAttr
	patience time.Duration
}

func newSide(e *End, who Side, family Family, patience time.Duration) (s *side, err error) {
	s = &side{End: e, Device: e.Devices[family], who: who, addr: e.Addrs[family], patience: patience}
	if s.attr, err = s.Device.QueryDevice(); err != nil {
		return nil, s.fault("query the device", err)
	}
	if s.port, err = s.Device.QueryPort(1); err != nil {
		return nil, s.fault("query the port", err)
	}
	if s.port.State != verbs.PortActive {
		return nil, s.differs("its port is not active")
	}
	if s.streams() {
		return s, nil
	}
	s.gid, err = gidIndex(s.Device, s.port.GIDs, s.addr)
	return s, s.fault("find its address "+s.addr.String(), err)
}

// streams says that the device is one of iWARP.
func (s *side) streams() bool { return s.Device.Info().Transport == verbs.TransportIWARP }

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

// fault is an error of a verb, with who had it.
func (s *side) fault(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s (%s) could not %s: %w", s.who, s.Name, what, err)
}

// differs is something that is not as it should be.
func (s *side) differs(format string, args ...any) error {
	return fmt.Errorf("%s (%s): %w", s.who, s.Name, fmt.Errorf(format, args...))
}

// rights are all that a peer can have on the device.
func (s *side) rights() verbs.Access {
	a := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	if s.attr.Caps.Has(verbs.CapAtomics) {
		a |= verbs.AccessRemoteAtomic
	}
	if s.attr.Caps.Has(verbs.CapFlush) {
		a |= verbs.AccessFlushGlobal
	}
	return a
}

// look has what the device has written be seen: memory that no completion has told of
// may lie at another host.
func (s *side) look() error {
	_, err := s.Device.QueryPort(1)
	return s.fault("query the port", err)
}

// inTurn does one thing after the other, as long as nothing goes wrong.
func inTurn(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
