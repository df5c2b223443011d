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

// checked calls f if the device may be used, and otherwise returns ErrNotFound.
func (c *someDevices) checked(device string, f func() error) error {
	if !c.has(device) {
		return fmt.Errorf("device %s: the agent was told to serve %s only: %w", device, strings.Join(c.names, ", "), verbs.ErrNotFound)
	}
	return f()
}

// Identity implements Host. It leaves out the devices that may not be used.
func (c *someDevices) Identity() (Identity, error) {
	id, err := c.Host.Identity()
	id.Devices = slices.DeleteFunc(id.Devices, func(d DeviceIdentity) bool { return !c.has(d.Info.Name) })
	return id, err
}

// Open implements Host.
func (c *someDevices) Open(device string) (dev verbs.Context, err error) {
	err = c.checked(device, func() error {
		dev, err = c.Host.Open(device)
		return err
	})
	return dev, err
}

// SetLink implements Host.
func (c *someDevices) SetLink(device string, up bool) error {
	return c.checked(device, func() error { return c.Host.SetLink(device, up) })
}

// SetAddress implements Host.
func (c *someDevices) SetAddress(device string, addr netip.Prefix, present bool) error {
	return c.checked(device, func() error { return c.Host.SetAddress(device, addr, present) })
}

// Restart implements Host.
func (c *someDevices) Restart(device string) error {
	return c.checked(device, func() error { return c.Host.Restart(device) })
}
