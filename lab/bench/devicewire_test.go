package bench

import (
	"net/netip"
	"slices"
	"testing"
)

func TestWireFor(t *testing.T) {
	for _, c := range []struct {
		asked   DeviceWire
		streams bool
		want    DeviceWire // empty for an error
	}{
		{"", false, WirePackets},
		{"", true, WireTCP},
		{WireUDP, false, WireUDP},
		{WireSegments, true, WireSegments},
		{WireUDP, true, ""},
		{WireTCP, false, ""},
		{"pigeon", false, ""},
	} {
		if got, err := wireFor(c.asked, c.streams); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%q for streams %v: %q, %v", c.asked, c.streams, got, err)
		}
	}
	for _, streams := range []bool{false, true} {
		for _, w := range DeviceWires(streams) {
			// Privileged wires have no limitations.
			if sees := len(w.Limitations()) == 0; sees == (w == UnprivilegedWire(streams)) {
				t.Errorf("%s: blind for %q", w, w.Limitations())
			}
		}
	}
}

func TestKernelAddrPairs(t *testing.T) {
	has := addresses("fe80::7", "10.0.0.7", "fd00::7", "10.0.0.8")
	own := prefixes("fe80::1/64", "10.0.0.1/24", "10.0.0.2/24", "192.0.2.1/24", "fd00::1/64")
	met, err := kernelAddrPairs(has, own, nil)
	if err != nil || !slices.Equal(met[4].peers, addresses("10.0.0.1", "10.0.0.2")) || !slices.Equal(met[4].local, addresses("10.0.0.7", "10.0.0.8")) ||
		!slices.Equal(met[6].peers, addresses("fd00::1")) {
		t.Errorf("%v, %v", met, err)
	}
	if reservePartnerAddr(met); len(met[4].peers) != 1 || len(met[6].peers) != 1 {
		t.Errorf("with partners: %v", met)
	}
	if met, err = kernelAddrPairs(has, own[:1], nil); err != nil || !slices.Equal(met[6].peers, addresses("fe80::1")) {
		t.Errorf("on the link alone: %v, %v", met, err)
	}
	if met, err = kernelAddrPairs(has, own, []netip.Prefix{own[2]}); err != nil || len(met) != 1 || !slices.Equal(met[4].peers, addresses("10.0.0.2")) {
		t.Errorf("as told: %v, %v", met, err)
	}
	if met, err = kernelAddrPairs(has, own[3:4], nil); err == nil {
		t.Errorf("nothing in common: %v", met)
	}
}

func TestSegmentAddrPairs(t *testing.T) {
	device := prefixes("fe80::7/64", "10.0.0.7/24")
	met, err := segmentAddrPairs(device, prefixes("10.0.0.80/24", "fe80::80/64"))
	if err != nil || len(met) != 1 || len(met[4].peers) != peers || met[4].local[0] != device[1].Addr() {
		t.Errorf("%v, %v", met, err)
	}
	if met, err = segmentAddrPairs(device, nil); err == nil {
		t.Errorf("nowhere: %v", met)
	}
}
