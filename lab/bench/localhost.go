package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/verbs"
)

// LocalHostOptions configure a LocalHost. The zero value is for the local machine.
type LocalHostOptions struct {
	// Program is the name and version of the agent's program.
	Program string
	// Root is the directory that contains /sys and /etc; / if empty.
	Root string
}

// LocalHost implements [agent.Host] for this machine: RDMA devices of any verbs provider,
// their description from sysfs, and links and addresses by netlink. Functions that the
// kernel does not have return [agent.ErrHostCannot]. On systems other than Linux it only
// opens devices. Changing links and addresses needs CAP_NET_ADMIN. A LocalHost is safe for
// concurrent use.
type LocalHost struct {
	provider verbs.Provider
	opt      LocalHostOptions
	hostNetwork
}

var _ agent.Host = (*LocalHost)(nil)

// NewLocalHost returns the local machine. Links and addresses are those of the caller's network
// namespace.
func NewLocalHost(p verbs.Provider, opt LocalHostOptions) (*LocalHost, error) {
	if opt.Root == "" {
		opt.Root = "/"
	}
	h := &LocalHost{provider: p, opt: opt}
	if err := h.hostNetwork.open(); err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return h, nil
}

// Close closes the netlink socket. Open devices stay open.
func (h *LocalHost) Close() { h.hostNetwork.close() }

// Open implements agent.Host.
func (h *LocalHost) Open(device string) (verbs.Context, error) { return h.provider.Open(device) }

// Identity implements agent.Host.
func (h *LocalHost) Identity() (agent.Identity, error) {
	name, err := os.Hostname()
	if err != nil {
		return agent.Identity{}, err
	}
	infos, err := h.provider.Devices()
	if err != nil {
		return agent.Identity{}, fmt.Errorf("list the devices of %s: %w", h.provider.Name(), err)
	}
	id := agent.Identity{
		Hostname: name, OS: h.distribution(), Kernel: report.ThisMachine().Kernel, Arch: runtime.GOARCH, Program: h.opt.Program,
		Devices: make([]agent.DeviceIdentity, 0, len(infos)),
	}
	for _, info := range infos {
		id.Devices = append(id.Devices, h.device(info))
	}
	return id, nil
}

// device describes a device.
func (h *LocalHost) device(info verbs.DeviceInfo) agent.DeviceIdentity {
	d := agent.DeviceIdentity{
		Info: info, Driver: h.driver(info.Name), Firmware: h.attribute(info.Name, "fw_ver"), Where: h.busAddress(info.Name),
	}
	d.DriverVersion = h.moduleVersion(d.Driver)
	if dev, err := h.netDevice(info.Name); err == nil {
		d.NetDevice = dev
		h.hostNetwork.describe(&d)
	}
	return d
}

// distribution returns the name of the distribution.
func (h *LocalHost) distribution() string {
	for line := range strings.Lines(h.read("etc", "os-release")) {
		if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(strings.TrimSpace(name), `"'`)
		}
	}
	return runtime.GOOS
}

// read returns the content of a file below the root; empty if there is none.
func (h *LocalHost) read(path ...string) string {
	b, err := os.ReadFile(filepath.Join(append([]string{h.opt.Root}, path...)...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
