// Package host is a Linux machine as the host of an agent: its RDMA devices by any
// provider of verbs, what sysfs says of them, and links and addresses by netlink. It
// knows no protocol, and what a kernel does not offer it does not imitate: that is
// [agent.ErrCannot]. On other systems it can open devices, and nothing else.
//
// To change links and addresses it needs CAP_NET_ADMIN. A Host may be used from several
// goroutines.
package host

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/verbs"
)

// Options is how a host is looked at. The zero value is right for the machine that we
// run on.
type Options struct {
	// Program is what the agent is part of, with its version.
	Program string
	// Root is where /sys and /etc are; / if empty.
	Root string
}

// Host is the machine with the devices of a provider.
type Host struct {
	provider verbs.Provider
	opt      Options
	network
}

var _ agent.Host = (*Host)(nil)

// New returns the machine with the devices of a provider. Links and addresses are those
// of the network namespace that the caller is in.
func New(p verbs.Provider, opt Options) (*Host, error) {
	if opt.Root == "" {
		opt.Root = "/"
	}
	h := &Host{provider: p, opt: opt}
	if err := h.network.open(); err != nil {
		return nil, fmt.Errorf("reach the kernel's network: %w", err)
	}
	return h, nil
}

// Close lets go of the kernel. Devices that were opened stay open.
func (h *Host) Close() { h.network.close() }

// Open implements agent.Host.
func (h *Host) Open(device string) (verbs.Context, error) { return h.provider.Open(device) }

// Identity implements agent.Host.
func (h *Host) Identity() (agent.Identity, error) {
	name, err := os.Hostname()
	if err != nil {
		return agent.Identity{}, err
	}
	infos, err := h.provider.Devices()
	if err != nil {
		return agent.Identity{}, fmt.Errorf("list the devices of %s: %w", h.provider.Name(), err)
	}
	id := agent.Identity{
		Hostname: name, OS: h.distribution(), Kernel: kernelRelease(), Arch: runtime.GOARCH, Program: h.opt.Program,
		Devices: make([]agent.DeviceIdentity, 0, len(infos)),
	}
	for _, info := range infos {
		id.Devices = append(id.Devices, h.device(info))
	}
	return id, nil
}

// device is what is known of a device.
func (h *Host) device(info verbs.DeviceInfo) agent.DeviceIdentity {
	d := agent.DeviceIdentity{
		Info: info, Driver: h.driver(info.Name), Firmware: h.attribute(info.Name, "fw_ver"), Where: h.where(info.Name),
	}
	d.DriverVersion = h.moduleVersion(d.Driver)
	if dev, err := h.netDevice(info.Name); err == nil {
		d.NetDevice = dev
		h.network.describe(&d)
	}
	return d
}

// distribution is what the operating system calls itself.
func (h *Host) distribution() string {
	for line := range strings.Lines(h.read("etc", "os-release")) {
		if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(strings.TrimSpace(name), `"'`)
		}
	}
	return runtime.GOOS
}

// read returns a file below the root; empty if there is none.
func (h *Host) read(path ...string) string {
	b, err := os.ReadFile(filepath.Join(append([]string{h.opt.Root}, path...)...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
