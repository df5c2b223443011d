package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

// SomeDevices returns a host with only the named devices of another; all if none is named.
func SomeDevices(h Host, names []string) Host { return &someDevices{h, names} }

type someDevices struct {
	Host
	names []string
}

func (c *someDevices) has(name string) bool {
	return len(c.names) == 0 || slices.Contains(c.names, name)
}

func (c *someDevices) check(name string) error {
	if !c.has(name) {
		return fmt.Errorf("device %s: the agent was told to serve %s only: %w", name, strings.Join(c.names, ", "), verbs.ErrNotFound)
	}
	return nil
}

// Identity implements Host.
func (c *someDevices) Identity() (Identity, error) {
	id, err := c.Host.Identity()
	id.Devices = slices.DeleteFunc(id.Devices, func(d DeviceIdentity) bool { return !c.has(d.Info.Name) })
	return id, err
}

// Open implements Host.
func (c *someDevices) Open(device string) (verbs.Context, error) {
	if err := c.check(device); err != nil {
		return nil, err
	}
	return c.Host.Open(device)
}

// SetLink implements Host.
func (c *someDevices) SetLink(device string, up bool) error {
	if err := c.check(device); err != nil {
		return err
	}
	return c.Host.SetLink(device, up)
}

// SetAddress implements Host.
func (c *someDevices) SetAddress(device string, addr netip.Prefix, present bool) error {
	if err := c.check(device); err != nil {
		return err
	}
	return c.Host.SetAddress(device, addr, present)
}

// Restart implements Host.
func (c *someDevices) Restart(device string) error {
	if err := c.check(device); err != nil {
		return err
	}
	return c.Host.Restart(device)
}
