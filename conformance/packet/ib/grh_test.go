package ib

import (
	"net/netip"
	"testing"
)

// The areas are those that Linux put in front of datagrams.
func TestGRH(t *testing.T) {
	four := append(make([]byte, 20), unhex("4500003800004000401126100a4d00010a4d000b")...)
	h, err := ParseGRH(append(four, "ABCD"...), 4)
	if err != nil || h.Src != netip.MustParseAddr("10.77.0.1") || h.Dst != netip.MustParseAddr("10.77.0.11") || *h.HopLimit != 64 || *h.Length != 56 {
		t.Errorf("IPv4: %+v, %v", h, err)
	}
	six := unhex("6007b52000241140" + "fd770000000000000000000000000001" + "fd770000000000000000000000000011")
	h, err = ParseGRH(six, 6)
	if err != nil || h.Src != netip.MustParseAddr("fd77::1") || *h.FlowLabel != 0x7b520 || *h.HopLimit != 64 {
		t.Errorf("IPv6: %+v, %v", h, err)
	}
	for name, c := range map[string]struct {
		area   []byte
		family int
	}{"IPv4 as IPv6": {four, 6}, "IPv6 as IPv4": {six, 4}, "cut": {six[:39], 6}, "zeros": {make([]byte, 40), 4}} {
		if _, err := ParseGRH(c.area, c.family); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
