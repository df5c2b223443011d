package bench

import (
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

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

// base returns the last element of a symbolic link's target; empty if there is none.
func (h *LocalHost) base(device string, path ...string) string {
	to, err := os.Readlink(filepath.Join(append([]string{h.sysfsDir(device)}, path...)...))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// busAddress returns the bus address of a device.
func (h *LocalHost) busAddress(device string) string { return h.base(device, "device") }

// driver returns the module of a device. Software devices have no bus, and sysfs does not
// name their modules: rxe has a parent attribute, and siw is an RNIC.
func (h *LocalHost) driver(device string) string {
	if d := h.base(device, "device", "driver"); d != "" {
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

// moduleVersion returns the version of a module, or the hash of its sources.
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
	if name := h.byGUID(device); name != "" {
		return name, nil
	}
	return "", fmt.Errorf("device %s: its network interface is unknown: %w", device, verbs.ErrNotFound)
}

// byGUID finds the interface whose MAC is the base of the device's GUID, as with siw.
func (h *LocalHost) byGUID(device string) string {
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
		if err == nil && len(mac) == 6 && eui64(mac) == [8]byte(guid) {
			return e.Name()
		}
	}
	return ""
}

// eui64 returns the modified EUI-64 of a MAC address.
func eui64(mac net.HardwareAddr) [8]byte {
	return [8]byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}
}
