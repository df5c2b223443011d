package guest

import (
	"fmt"
	"slices"
	"strings"
)

// Device is a software RDMA device of the kernel.
type Device string

// The devices that a guest can have.
const (
	RXE Device = "rxe" // soft-RoCE, called rxe0
	SIW Device = "siw" // soft-iWARP, called siw0
	// SIWCRC is soft-iWARP built to request the MPA CRC, for which it has no
	// option. Its name is siw0, too.
	SIWCRC Device = "siw-crc"
)

// DevicesFile has the devices of a guest, in the format of ParseDevices. It does
// not exist while they are changed, or if that failed.
const DevicesFile = "/run/devices"

// ParseDevices parses a list with commas; "both" is rxe and siw, and "none" is
// none.
func ParseDevices(list string) ([]Device, error) {
	switch list {
	case "none":
		return nil, nil
	case "both":
		return []Device{RXE, SIW}, nil
	}
	var all []Device
	for name := range strings.SplitSeq(list, ",") {
		all = append(all, Device(name))
	}
	return all, CheckDevices(all)
}

// CheckDevices validates a list of devices.
func CheckDevices(all []Device) error {
	for i, d := range all {
		switch {
		case d != RXE && d != SIW && d != SIWCRC:
			return fmt.Errorf("no device %q: there are rxe, siw and siw-crc; both is rxe,siw", d)
		case slices.ContainsFunc(all[:i], func(e Device) bool { return e.Kind() == d.Kind() }):
			return fmt.Errorf("two devices of kind %s: a guest has one of each at most", d.Kind())
		}
	}
	return nil
}

// Kind returns the link type of the kernel.
func (d Device) Kind() string {
	if d == SIWCRC {
		return string(SIW)
	}
	return string(d)
}

// Name returns the name of the device.
func (d Device) Name() string { return d.Kind() + "0" }

// NeedsSIW reports whether the devices need siw, which Debian's kernels lack.
func NeedsSIW(all []Device) bool {
	return slices.ContainsFunc(all, func(d Device) bool { return d.Kind() == string(SIW) })
}

// join is the inverse of ParseDevices.
func join(all []Device) string {
	if len(all) == 0 {
		return "none"
	}
	names := make([]string, 0, len(all))
	for _, d := range all {
		names = append(names, string(d))
	}
	return strings.Join(names, ",")
}
