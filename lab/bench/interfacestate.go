package bench

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
)

// linkController changes the link and the addresses of a device's interface: an agent.Host, an
// agent.Client or a benchNetwork.
type linkController interface {
	SetLink(device string, up bool) error
	SetAddress(device string, addr netip.Prefix, present bool) error
}

// interfaceState changes the interface of a device for a case, and restores it.
type interfaceState struct {
	host     linkController
	device   string
	addrs    []netip.Prefix // of the interface at the start
	linkDown bool
	removed  []netip.Addr
}

// setLink sets the device's link up or down.
func (s *interfaceState) setLink(up bool) error {
	err := wrapCannot(s.host.SetLink(s.device, up))
	if err == nil {
		s.linkDown = !up
	}
	return err
}

// setAddress removes an address that the interface had at the start, or adds it again.
func (s *interfaceState) setAddress(a netip.Addr, present bool) error {
	if present != slices.Contains(s.removed, a) {
		return nil // it is so already
	}
	i := slices.IndexFunc(s.addrs, func(p netip.Prefix) bool { return p.Addr() == a })
	if i < 0 {
		return fmt.Errorf("%w: %v is not an address of the device's interface", conformance.ErrBenchCannot, a)
	}
	if err := wrapCannot(s.host.SetAddress(s.device, s.addrs[i], present)); err != nil {
		return err
	}
	s.removed = slices.DeleteFunc(s.removed, func(t netip.Addr) bool { return t == a })
	if !present {
		s.removed = append(s.removed, a)
	}
	return nil
}

// restore sets the link up and adds the removed addresses again.
func (s *interfaceState) restore() error {
	var errs []error
	if s.linkDown {
		errs = append(errs, s.setLink(true))
	}
	for _, a := range slices.Clone(s.removed) {
		errs = append(errs, s.setAddress(a, true))
	}
	return errors.Join(errs...)
}

// wrapCannot adds conformance.ErrBenchCannot to agent.ErrHostCannot.
func wrapCannot(err error) error {
	if errors.Is(err, agent.ErrHostCannot) {
		return fmt.Errorf("%w: %w", conformance.ErrBenchCannot, err)
	}
	return err
}
