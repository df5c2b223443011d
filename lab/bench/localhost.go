package bench

import (
	"encoding/hex"
	"fmt"
	"net"
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

// LocalHost implements [agent.Host] for this machine: RDMA devices of any verbs provider, their
// description from sysfs, links and addresses by netlink. Functions that the kernel lacks return
// [agent.ErrHostCannot]. On systems other than Linux it only opens devices. Changing links and
// addresses needs CAP_NET_ADMIN. A LocalHost is safe for concurrent use.
type LocalHost struct {
	provider verbs.Provider
	opt      LocalHostOptions
	hostNetwork
}

// NewLocalHost returns the local machine, as the host of the provider's devices. Links and
// addresses are those of the caller's network namespace.
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

// Identity implements agent.Host: it describes this machine and the RDMA devices of the provider.
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
		id.Devices = append(id.Devices, h.describeDevice(info))
	}
	return id, nil
}

// describeDevice returns the identity of a device, from sysfs and netlink.
func (h *LocalHost) describeDevice(info verbs.DeviceInfo) agent.DeviceIdentity {
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

// distribution returns the name of the Linux distribution; that of the operating system if unknown.
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

// Drivers of software devices, and the names of their rdma links.
const (
	driverRXE, linkRXE = "rdma_rxe", "rxe"
	driverSIW, linkSIW = "siw", "siw"
)

// sysfsDir returns the sysfs directory of a device.
func (h *LocalHost) sysfsDir(device string) string {
	return filepath.Join(h.opt.Root, "sys", "class", "infiniband", filepath.Base(device))
}

// attribute reads a sysfs file of a device.
func (h *LocalHost) attribute(device string, path ...string) string {
	return h.read(append([]string{"sys", "class", "infiniband", filepath.Base(device)}, path...)...)
}

// linkTarget returns the last element of the target of a symbolic link in sysfs, or "".
func (h *LocalHost) linkTarget(device string, path ...string) string {
	to, err := os.Readlink(filepath.Join(append([]string{h.sysfsDir(device)}, path...)...))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// busAddress returns the bus address of a device.
func (h *LocalHost) busAddress(device string) string { return h.linkTarget(device, "device") }

// driver returns the module of a device, or "". Software devices have no bus, and sysfs does not
// name their modules: rxe has a parent attribute, and siw is an RNIC (node type 4).
func (h *LocalHost) driver(device string) string {
	if d := h.linkTarget(device, "device", "driver"); d != "" {
		return d
	}
	switch {
	case h.attribute(device, "parent") != "":
		return driverRXE
	case h.busAddress(device) == "" && strings.HasPrefix(h.attribute(device, "node_type"), "4:"):
		return driverSIW
	default:
		return ""
	}
}

// moduleVersion returns the version of a driver's module, or the hash of its sources, or "".
func (h *LocalHost) moduleVersion(driver string) string {
	if driver == "" {
		return ""
	}
	if v := h.read("sys", "module", driver, "version"); v != "" {
		return v
	}
	if v := h.read("sys", "module", driver, "srcversion"); v != "" {
		return "srcversion " + v
	}
	return ""
}

// netDevice returns the network interface of a device's first port.
func (h *LocalHost) netDevice(device string) (string, error) {
	for _, name := range []string{h.attribute(device, "parent"), h.attribute(device, "ports", "1", "gid_attrs", "ndevs", "0")} {
		if name != "" {
			return name, nil
		}
	}
	if all, err := os.ReadDir(filepath.Join(h.sysfsDir(device), "device", "net")); err == nil && len(all) == 1 {
		return all[0].Name(), nil
	}
	if name := h.interfaceByGUID(device); name != "" {
		return name, nil
	}
	return "", fmt.Errorf("device %s: its network interface is unknown: %w", device, verbs.ErrNotFound)
}

// interfaceByGUID returns the interface from whose MAC address the device's node GUID is derived,
// as siw does it; empty if there is none.
func (h *LocalHost) interfaceByGUID(device string) string {
	guid, err := hex.DecodeString(strings.ReplaceAll(h.attribute(device, "node_guid"), ":", ""))
	if err != nil || len(guid) != 8 {
		return ""
	}
	dir := filepath.Join(h.opt.Root, "sys", "class", "net")
	all, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	for _, e := range all {
		mac, err := net.ParseMAC(h.read("sys", "class", "net", e.Name(), "address"))
		if err != nil || len(mac) != 6 {
			continue
		}
		if modifiedEUI64 := [8]byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}; modifiedEUI64 == [8]byte(guid) {
			return e.Name()
		}
	}
	return ""
}
