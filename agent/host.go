package agent

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/verbs"
)

// Host is what an agent runs on: where the devices are, and who can do to them what
// verbs cannot. What it is not able to do it refuses with an error that wraps
// [ErrCannot]. Several callers may ask at once, but only one about each device.
type Host interface {
	// Identity says what host that is, and lists its devices.
	Identity() (Identity, error)
	// Open opens a device. The agent closes it.
	Open(device string) (verbs.Context, error)
	// SetLink takes a device's cable out, or puts it in, as far as the device can tell.
	SetLink(device string, up bool) error
	// SetAddress gives a device's network interface an address, or takes it away. That
	// the interface is so already is no error.
	SetAddress(device string, addr netip.Prefix, present bool) error
	// Restart has a device be as it is after power-on. Nobody has it open.
	Restart(device string) error
}

// Identity is what has to be known of a host to believe a result.
type Identity struct {
	Hostname string
	// OS is the operating system, as its distribution calls it.
	OS string
	// Kernel is its release, as uname has it.
	Kernel string
	// Arch is the processor's architecture, as Go calls it.
	Arch string
	// Program is what the agent is part of, with its version.
	Program string
	Devices []DeviceIdentity
}

// DeviceIdentity is a device of a host. What is not known is empty.
type DeviceIdentity struct {
	Info verbs.DeviceInfo
	// Driver is the kernel module, or the library, and its version.
	Driver        string
	DriverVersion string
	Firmware      string
	// NetDevice is the network interface that the device belongs to.
	NetDevice string
	// MAC is that interface's.
	MAC   string
	MTU   int
	Addrs []netip.Prefix
	// Where is the device's place on a bus, for hardware.
	Where string
}
