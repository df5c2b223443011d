package agent

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/verbs"
)

// Host is the host of an agent: it opens devices, and changes them in ways that verbs
// cannot. Unsupported methods return an error that wraps [ErrHostCannot]. Methods may be called
// concurrently, but not for the same device.
type Host interface {
	// Identity describes the host and lists its devices.
	Identity() (Identity, error)
	// Open opens a device. The agent closes it.
	Open(device string) (verbs.Context, error)
	// SetLink sets a device's link down or up.
	SetLink(device string, up bool) error
	// SetAddress adds or removes an address of a device's network interface. It is no error
	// if nothing changes.
	SetAddress(device string, addr netip.Prefix, present bool) error
	// Restart resets a device to its state after power-on. The device is not open.
	Restart(device string) error
}

// FixedHost has the methods of a [Host] that cannot change its devices.
type FixedHost struct{}

// SetLink returns ErrHostCannot.
func (FixedHost) SetLink(string, bool) error { return ErrHostCannot }

// SetAddress returns ErrHostCannot.
func (FixedHost) SetAddress(string, netip.Prefix, bool) error { return ErrHostCannot }

// Restart returns ErrHostCannot.
func (FixedHost) Restart(string) error { return ErrHostCannot }

// Identity describes a host, for reports.
type Identity struct {
	Hostname string
	// OS is the name of the distribution.
	OS string
	// Kernel is the release, as from uname.
	Kernel string
	// Arch is GOARCH.
	Arch string
	// Program is the name and version of the agent's program.
	Program string
	Devices []DeviceIdentity
}

// DeviceIdentity describes a device. Unknown fields are empty.
type DeviceIdentity struct {
	Info verbs.DeviceInfo
	// Driver is the kernel module or library with its version.
	Driver        string
	DriverVersion string
	Firmware      string
	// NetDevice is the device's network interface.
	NetDevice string
	// MAC is the address of that interface.
	MAC   string
	MTU   int
	Addrs []netip.Prefix
	// Where is the bus address of a hardware device.
	Where string
}
