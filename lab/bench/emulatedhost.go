package bench

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance/wire"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/verbs"
)

// emulatedDevice is the name of the device of an EmulatedHost.
const emulatedDevice = "emu0"

// EmulatedHost is an agent.Host with one emulated device, on an interface of this host.
type EmulatedHost struct {
	agent.FixedHost
	provider *nics.Provider
	opener   nics.Opener
	intf     string
}

// NewEmulatedHost makes a host with an emulated device of a provider on an interface. Unless the
// device runs over TCP, it switches off the interface's offloads.
func NewEmulatedHost(provider, intf string) (*EmulatedHost, error) {
	p, err := nics.Find(provider)
	if err != nil {
		return nil, err
	}
	o, err := p.NewOpener(nics.Setup{})
	if err != nil {
		return nil, err
	}
	h := &EmulatedHost{provider: p, opener: o, intf: intf}
	_, addrs, err := h.currentAddrs()
	if err == nil && len(addrs) == 0 {
		err = fmt.Errorf("interface %s has no address that a device could have: give it one (ip address add)", intf)
	}
	if err != nil {
		return nil, fmt.Errorf("--interface: %w", err)
	}
	if p.OverTCP {
		return h, nil // the peer's kernel handles offloads of TCP
	}
	// With offloads a veth pair carries packets without checksums, or larger than the MTU.
	if err := wire.DisableOffloads(intf); err != nil {
		return nil, fmt.Errorf("--interface %s: switch off its offloads: %w", intf, err)
	}
	return h, nil
}

// currentAddrs returns the interface and its present addresses, IPv6 first, without link-local
// addresses: the device does not support scopes.
func (h *EmulatedHost) currentAddrs() (*net.Interface, []netip.Prefix, error) {
	intf, addrs, err := interfaceAddrs(h.intf)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", h.intf, err)
	}
	addrs = slices.DeleteFunc(addrs, func(p netip.Prefix) bool { return p.Addr().IsLinkLocalUnicast() })
	slices.SortStableFunc(addrs, func(a, b netip.Prefix) int { return b.Addr().BitLen() - a.Addr().BitLen() })
	return intf, addrs, nil
}

// Close does nothing: clients close the devices that they open.
func (h *EmulatedHost) Close() {}

// Identity implements agent.Host: it describes this machine and the emulated device.
func (h *EmulatedHost) Identity() (agent.Identity, error) {
	intf, addrs, err := h.currentAddrs()
	if err != nil {
		return agent.Identity{}, err
	}
	name, err := os.Hostname()
	return agent.Identity{
		Hostname: name, OS: runtime.GOOS, Kernel: report.ThisMachine().Kernel, Arch: runtime.GOARCH, Program: "fabrictest " + report.ToolVersion(),
		Devices: []agent.DeviceIdentity{{
			Info:   verbs.DeviceInfo{Name: emulatedDevice, Provider: h.provider.Name, Transport: h.provider.Transport},
			Driver: "fabrictest " + h.provider.Name, DriverVersion: report.ToolVersion(),
			NetDevice: intf.Name, MAC: intf.HardwareAddr.String(), MTU: intf.MTU, Addrs: addrs,
		}},
	}, err
}

// Open implements agent.Host. It opens the device on sockets at the interface's first address.
func (h *EmulatedHost) Open(device string) (verbs.Context, error) {
	if device != emulatedDevice {
		return nil, fmt.Errorf("device %s: %w: there is %s", device, verbs.ErrNotFound, emulatedDevice)
	}
	_, addrs, err := h.currentAddrs()
	if err == nil && len(addrs) == 0 {
		err = fmt.Errorf("interface %s has no address any more", h.intf)
	}
	if err != nil {
		return nil, err
	}
	// A device on sockets has one address. Without GSO, the interface carries packets as on a wire.
	nicConfig := nics.NICConfig{Name: emulatedDevice, Addr: addrs[0].Addr(), NoGSO: true}
	return h.opener.OnSockets(nicConfig)
}

// Restart implements agent.Host. Every Open makes a new device.
func (h *EmulatedHost) Restart(string) error { return nil }
