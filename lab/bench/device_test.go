package bench

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

func gid(index int, addr string, t verbs.GIDType) verbs.GIDEntry {
	return verbs.GIDEntry{Index: index, GID: verbs.GIDFrom(netip.MustParseAddr(addr)), Type: t}
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, s := range texts {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func addresses(texts ...string) (all []netip.Addr) {
	for _, s := range texts {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

// tableDevice is a device of which only the GID table is queried.
type tableDevice struct {
	verbs.Context
	table []verbs.GIDEntry
}

func (d *tableDevice) QueryPort(uint8) (verbs.PortAttr, error) {
	return verbs.PortAttr{GIDs: len(d.table)}, nil
}
func (d *tableDevice) QueryGID(_ uint8, i int) (verbs.GIDEntry, error) { return d.table[i], nil }

// A common GID table: the link-local address first, and each address for RoCEv1 and v2.
var nicTable = []verbs.GIDEntry{
	gid(0, "fe80::1", verbs.GIDTypeRoCEv1), gid(1, "fe80::1", verbs.GIDTypeRoCEv2),
	gid(2, "10.0.0.7", verbs.GIDTypeRoCEv1), gid(3, "10.0.0.7", verbs.GIDTypeRoCEv2),
	gid(4, "fd00::7", verbs.GIDTypeRoCEv2), gid(5, "10.0.1.7", verbs.GIDTypeRoCEv2),
	{Index: 6, Type: verbs.GIDTypeRoCEv2},
}

func TestRoCEAddrPairs(t *testing.T) {
	has, err := roceV2Addrs(&tableDevice{table: nicTable})
	if want := addresses("fe80::1", "10.0.0.7", "fd00::7", "10.0.1.7"); err != nil || !slices.Equal(has, want) {
		t.Fatalf("the RoCEv2 addresses are %v, %v, want %v", has, err, want)
	}
	for _, c := range []struct {
		judge []netip.Prefix
		want  map[int]addrPair
		err   string
	}{
		{nil, map[int]addrPair{6: {addresses("fe80::1"), addresses("fe80::fab:7e57:0:1", "fe80::fab:7e57:0:2", "fe80::fab:7e57:0:3", "fe80::fab:7e57:0:4")}}, ""},
		{prefixes("10.0.1.250/24", "fd00::ff/64"), map[int]addrPair{
			4: {addresses("10.0.1.7"), addresses("10.0.1.250", "10.0.1.251", "10.0.1.252", "10.0.1.253")},
			6: {addresses("fd00::7"), addresses("fd00::ff", "fd00::100", "fd00::101", "fd00::102")},
		}, ""},
		{prefixes("10.0.0.5/24"), nil, "10.0.0.7 belongs to the device"},
		{prefixes("10.0.0.254/24"), nil, "10.0.1.0 is in another network"},
	} {
		got, err := pairWithRange("RoCEv2 address", has, append(c.judge, linkLocalPeers))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v: %v, want %q", c.judge, err, c.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %v %v, want %v", c.judge, got, err, c.want)
		}
	}
	if _, err := pairWithRange("RoCEv2 address", has[1:2], prefixes("10.9.0.1/24")); err == nil || !strings.Contains(err.Error(), "only [10.0.0.7]") {
		t.Errorf("a network without an address of the device: %v", err)
	}
}

func TestStreamKernelAddrPairs(t *testing.T) {
	device, own := prefixes("10.0.0.7/24", "fe80::7/64"), prefixes("10.0.0.1/24", "10.0.0.2/24", "fe80::1/64", "192.0.2.1/24")
	got, err := kernelAddrPairs(globalAddrs(device), own, nil)
	if want := map[int]addrPair{4: {addresses("10.0.0.7"), addresses("10.0.0.1", "10.0.0.2")}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	got, err = kernelAddrPairs(globalAddrs(device), own, prefixes("10.0.0.2/24"))
	if want := map[int]addrPair{4: {addresses("10.0.0.7"), addresses("10.0.0.2")}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("with configured peers: %v %v, want %v", got, err, want)
	}
	if got, err = kernelAddrPairs(globalAddrs(device), own[2:], nil); err == nil {
		t.Errorf("no common network: %v", got)
	}
}

func TestUnsupportedSetups(t *testing.T) {
	pairs := map[int]addrPair{4: {addresses("10.0.0.7", "10.0.0.8"), addresses("10.0.0.1")}}
	for _, s := range []conformance.Setup{
		{Markers: true}, {Reliable: true}, {Isolate: true}, {MTU: 1280}, {Family: 6},
	} {
		if _, err := selectAddrs(s, pairs, 1500); !errors.Is(err, conformance.ErrBenchCannot) {
			t.Errorf("%v: %v", s, err)
		}
	}
	for s, n := range map[conformance.Setup]int{{}: 1, {Family: 4}: 1, {TwoAddresses: true}: 2, {MTU: 1500}: 1} {
		if e, err := selectAddrs(s, pairs, 1500); err != nil || len(e.local) != n || !e.local[0].Is4() {
			t.Errorf("%v: %v %v", s, e, err)
		}
	}
}

func TestWireFor(t *testing.T) {
	for _, c := range []struct {
		wanted  DeviceWire
		streams bool
		want    DeviceWire // empty for an error
	}{
		{"", false, WirePackets},
		{"", true, WireTCP},
		{WireUDP, false, WireUDP},
		{WireSegments, true, WireSegments},
		{WireUDP, true, ""},
		{WireTCP, false, ""},
		{"unknown", false, ""},
	} {
		if got, err := wireFor(c.wanted, c.streams); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%q for streams %v: %q, %v", c.wanted, c.streams, got, err)
		}
	}
	for _, streams := range []bool{false, true} {
		for _, w := range DeviceWires(streams) {
			// Privileged wires have no limitations.
			if seesAll := len(w.Limitations()) == 0; seesAll == (w == WireUDP || w == WireTCP) {
				t.Errorf("%s: limitations %q", w, w.Limitations())
			}
		}
	}
}

func TestKernelAddrPairs(t *testing.T) {
	has := addresses("fe80::7", "10.0.0.7", "fd00::7", "10.0.0.8")
	own := prefixes("fe80::1/64", "10.0.0.1/24", "10.0.0.2/24", "192.0.2.1/24", "fd00::1/64")
	pairs, err := kernelAddrPairs(has, own, nil)
	if err != nil || !slices.Equal(pairs[4].peers, addresses("10.0.0.1", "10.0.0.2")) || !slices.Equal(pairs[4].local, addresses("10.0.0.7", "10.0.0.8")) ||
		!slices.Equal(pairs[6].peers, addresses("fd00::1")) {
		t.Errorf("%v, %v", pairs, err)
	}
	if reservePartnerAddr(pairs); len(pairs[4].peers) != 1 || len(pairs[6].peers) != 1 {
		t.Errorf("with partners: %v", pairs)
	}
	if pairs, err = kernelAddrPairs(has, own[:1], nil); err != nil || !slices.Equal(pairs[6].peers, addresses("fe80::1")) {
		t.Errorf("link-local only: %v, %v", pairs, err)
	}
	if pairs, err = kernelAddrPairs(has, own, []netip.Prefix{own[2]}); err != nil || len(pairs) != 1 || !slices.Equal(pairs[4].peers, addresses("10.0.0.2")) {
		t.Errorf("with configured peers: %v, %v", pairs, err)
	}
	if pairs, err = kernelAddrPairs(has, own[3:4], nil); err == nil {
		t.Errorf("no common network: %v", pairs)
	}
}

func TestSegmentAddrPairs(t *testing.T) {
	device := prefixes("fe80::7/64", "10.0.0.7/24")
	pairs, err := pairWithRange("address", globalAddrs(device), prefixes("10.0.0.80/24", "fe80::80/64"))
	if err != nil || len(pairs) != 1 || len(pairs[4].peers) != peers || pairs[4].local[0] != device[1].Addr() {
		t.Errorf("%v, %v", pairs, err)
	}
	if pairs, err = pairWithRange("address", globalAddrs(device), nil); err == nil {
		t.Errorf("without peers: %v", pairs)
	}
}

func TestWatchdogEndsCasesWithoutProgress(t *testing.T) {
	const limit = 2 * time.Minute
	for _, c := range []struct {
		name    string
		replies []uint64 // at the end of each limit
		hungAt  int      // limits that have passed; 0 if the case does not hang
	}{
		{"no verb call returns", []uint64{5}, 1},
		{"verb calls return", []uint64{6, 7, 8, 9}, 0},
		{"verb calls return at first", []uint64{6, 7, 7}, 3},
		{"the case never ends", []uint64{6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Second
			replies := uint64(0)
			w := watchdog{end: start + maxCaseIntervals*limit, lastReplies: 5, replies: func() uint64 { return replies }}
			hungAt := 0
			for i, n := range c.replies {
				replies = n
				if w.hung(start + time.Duration(i+1)*limit) {
					hungAt = i + 1
					break
				}
			}
			if hungAt != c.hungAt {
				t.Errorf("the case hangs after %d limits, want %d", hungAt, c.hungAt)
			}
		})
	}
}

// failingDevice is a device that does not close.
type failingDevice struct {
	verbs.Context
	err error
}

func (d failingDevice) Close() error           { return d.err }
func (d failingDevice) Info() verbs.DeviceInfo { return verbs.DeviceInfo{Name: "dev"} }

// A device that fails to close is reported; one that is closed, or did not open, is no error.
func TestDevicesThatFailToClose(t *testing.T) {
	failed := errors.New("busy")
	if err := closeDevices([]verbs.Context{nil, failingDevice{}, failingDevice{err: verbs.ErrClosed}}); err != nil {
		t.Error(err)
	}
	if err := closeDevices([]verbs.Context{failingDevice{err: failed}, failingDevice{}}); !errors.Is(err, failed) || err.Error() != "close dev: busy" {
		t.Errorf("%v, want the error of the device", err)
	}
}
