package host

import (
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

// Drivers of the kernel's software devices, and what their links are called.
const (
	driverRXE, linkRXE = "rdma_rxe", "rxe"
	driverSIW, linkSIW = "siw", "siw"
)

// class is where the kernel tells of a device.
func (h *Host) class(device string) string {
	return filepath.Join(h.opt.Root, "sys", "class", "infiniband", filepath.Base(device))
}

// attribute is a file that the kernel has for a device.
func (h *Host) attribute(device string, path ...string) string {
	return h.read(append([]string{"sys", "class", "infiniband", filepath.Base(device)}, path...)...)
}

// base is the last part of where a link below a device leads to; empty if there is none.
func (h *Host) base(device string, path ...string) string {
	to, err := os.Readlink(filepath.Join(append([]string{h.class(device)}, path...)...))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// where is the device's place on a bus.
func (h *Host) where(device string) string { return h.base(device, "device") }

// driver is the module of a device. Software devices hang on no bus, and the kernel does
// not name their modules: rxe has a parent, and siw is an RNIC.
func (h *Host) driver(device string) string {
	if d := h.base(device, "device", "driver"); d != "" {
		return d
	}
	switch {
	case h.attribute(device, "parent") != "":
		return driverRXE
	case h.where(device) == "" && strings.HasPrefix(h.attribute(device, "node_type"), "4:"):
		return driverSIW
	default:
		return ""
	}
}

// moduleVersion is what a module says of itself: a version, or a hash of its sources.
func (h *Host) moduleVersion(driver string) string {
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

// netDevice is the network interface of a device's first port.
func (h *Host) netDevice(device string) (string, error) {
	for _, name := range []string{h.attribute(device, "parent"), h.attribute(device, "ports", "1", "gid_attrs", "ndevs", "0")} {
		if name != "" {
			return name, nil
		}
	}
	if all, err := os.ReadDir(filepath.Join(h.class(device), "device", "net")); err == nil && len(all) == 1 {
		return all[0].Name(), nil
	}
	if name := h.byGUID(device); name != "" {
		return name, nil
	}
	return "", fmt.Errorf("device %s: no network interface of it is known: %w", device, verbs.ErrNotFound)
}

// byGUID finds the interface from whose MAC address the device has made its GUID, as siw
// does.
func (h *Host) byGUID(device string) string {
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

// eui64 is the modified EUI-64 of a MAC address.
func eui64(mac net.HardwareAddr) [8]byte {
	return [8]byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}
}
