package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance/etherwire"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/verbs"
)

// emulable are the providers whose devices an agent can have on an interface.
var emulable = []string{"softroce", "softiwarp"}

// emulatedDevice is what the device of an emulatedHost is called.
const emulatedDevice = "emu0"

// emulatedHost is this host with an emulated device on one of its interfaces.
type emulatedHost struct {
	provider *nics.Provider
	opener   nics.Opener
	intf     string
}

func newEmulatedHost(provider, intf string) (*emulatedHost, error) {
	p, err := nics.Find(provider)
	if err != nil {
		return nil, err
	}
	o, err := p.NewOpener(nics.Setup{})
	if err != nil {
		return nil, err
	}
	h := &emulatedHost{p, o, intf}
	_, addrs, err := h.look()
	if err == nil && len(addrs) == 0 {
		err = fmt.Errorf("interface %s has no address that a device could have: give it one (ip address add)", intf)
	}
	if err != nil {
		return nil, fmt.Errorf("--interface: %w", err)
	}
	if p.OverTCP {
		return h, nil // the judge's kernel makes segments whole again
	}
	// On a virtual cable they would leave checksums and packets for nobody to make.
	if err := etherwire.DisableOffloads(intf); err != nil {
		return nil, fmt.Errorf("--interface %s: switch off its offloads: %w", intf, err)
	}
	return h, nil
}

// look returns the interface and its addresses, those of IPv6 first. Link-local ones are
// none for the device, which has no scopes.
func (h *emulatedHost) look() (*net.Interface, []netip.Prefix, error) {
	intf, err := net.InterfaceByName(h.intf)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", h.intf, err)
	}
	all, err := intf.Addrs()
	if err != nil {
		return nil, nil, err
	}
	var addrs []netip.Prefix
	for _, a := range all {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsLinkLocalUnicast() {
			continue
		}
		if ip, ok := netip.AddrFromSlice(n.IP); ok {
			bits, _ := n.Mask.Size()
			addrs = append(addrs, netip.PrefixFrom(ip.Unmap(), bits))
		}
	}
	slices.SortStableFunc(addrs, func(a, b netip.Prefix) int { return b.Addr().BitLen() - a.Addr().BitLen() })
	return intf, addrs, nil
}

// Close has nothing to do: who opened a device closes it.
func (h *emulatedHost) Close() {}

// Identity implements agent.Host.
func (h *emulatedHost) Identity() (agent.Identity, error) {
	intf, addrs, err := h.look()
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

// Open implements agent.Host.
func (h *emulatedHost) Open(device string) (verbs.Context, error) {
	if device != emulatedDevice {
		return nil, fmt.Errorf("device %s: %w: there is %s", device, verbs.ErrNotFound, emulatedDevice)
	}
	_, addrs, err := h.look()
	if err == nil && len(addrs) == 0 {
		err = fmt.Errorf("interface %s has no address any more", h.intf)
	}
	if err != nil {
		return nil, err
	}
	at := nics.NICConfig{Name: emulatedDevice, Addr: addrs[0].Addr(), NoGSO: true} // a device on sockets has one address
	return h.opener.OnSockets(at)
}

// SetLink implements agent.Host.
func (h *emulatedHost) SetLink(string, bool) error { return agent.ErrHostCannot }

// SetAddress implements agent.Host.
func (h *emulatedHost) SetAddress(string, netip.Prefix, bool) error { return agent.ErrHostCannot }

// Restart implements agent.Host: a device that is opened is a new one.
func (h *emulatedHost) Restart(string) error { return nil }
