package guest

import (
	"fmt"
	"slices"
	"strings"
)

// Device is an RDMA device of a kernel's own, in software.
type Device string

// The devices that a guest can have, on its wire.
const (
	RXE Device = "rxe" // soft-RoCE, called rxe0
	SIW Device = "siw" // soft-iWARP, called siw0
	// SIWCRC is soft-iWARP that asks for MPA's CRC, for which it has no option: one
	// word of its source is another. It is called siw0 as well.
	SIWCRC Device = "siw-crc"
)

// DevicesFile is where a guest has the names of the devices on its wire, as
// ParseDevices reads them; while they are changed, or if that failed, it is not there.
const DevicesFile = "/run/devices"

// ParseDevices reads a list with commas; "both" is rxe and siw, and "none" is none.
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

// CheckDevices says what is wrong with a choice of devices.
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

// Kind is what the kernel calls this kind of link.
func (d Device) Kind() string {
	if d == SIWCRC {
		return string(SIW)
	}
	return string(d)
}

// Name is what the device is called.
func (d Device) Name() string { return d.Kind() + "0" }

// NeedsSIW says that a choice of devices needs modules that Debian's kernels lack.
func NeedsSIW(all []Device) bool {
	return slices.ContainsFunc(all, func(d Device) bool { return d.Kind() == string(SIW) })
}

// join is the opposite of ParseDevices.
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
