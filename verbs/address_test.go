package verbs_test

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"

	. "github.com/fabrictest/fabrictest/verbs"
)

func TestMTUBytes(t *testing.T) {
	for m, want := range []int{0, 256, 512, 1024, 2048, 4096, 0} {
		if got := MTU(m).Bytes(); got != want {
			t.Errorf("MTU(%d) is %d bytes, want %d", m, got, want)
		}
	}
	if got := MTU(1 << 31).Bytes(); got != 0 {
		t.Errorf("a nonsensical MTU is %d bytes", got)
	}
	if got := MTU1024.String(); got != "1024" {
		t.Errorf("MTU1024 prints %q", got)
	}
}

func TestMTUForIsTheLargestThatFits(t *testing.T) {
	for _, tc := range []struct {
		n    int
		want MTU
	}{
		{-1, 0},
		{0, 0},
		{255, 0},
		{256, MTU256},
		{511, MTU256},
		{512, MTU512},
		{1023, MTU512},
		{1024, MTU1024},
		{1500, MTU1024},
		{2048, MTU2048},
		{4095, MTU2048},
		{4096, MTU4096},
		{9000, MTU4096},
	} {
		if got := MTUFor(tc.n); got != tc.want {
			t.Errorf("MTUFor(%d) = %v, want %v", tc.n, got, tc.want)
		}
	}
}

func TestGIDIsAnAddress(t *testing.T) {
	for _, tc := range []struct{ addr, gid string }{
		{"10.77.0.1", "00000000000000000000ffff0a4d0001"},
		{"fd77::1", "fd770000000000000000000000000001"},
		{"::", "00000000000000000000000000000000"},
	} {
		a := netip.MustParseAddr(tc.addr)
		g := GIDFrom(a)
		if got := hex.EncodeToString(g[:]); got != tc.gid {
			t.Errorf("GID of %s is %s, want %s", a, got, tc.gid)
		}
		if g.Addr() != a || g.String() != tc.addr {
			t.Errorf("GID of %s stands for %v and prints %s", a, g.Addr(), g)
		}
	}
	if g := GIDFrom(netip.MustParseAddr("::ffff:10.77.0.1")); g.Addr() != netip.MustParseAddr("10.77.0.1") {
		t.Errorf("a mapped address stands for %v, want IPv4", g.Addr())
	}
}

// Header areas of received datagrams, as a Linux soft-RoCE device wrote them.
const (
	areaIPv4 = "0000000000000000000000000000000000000000" + "4500003800004000401126100a4d00010a4d000b"
	areaIPv6 = "6007b52000241140" + "fd770000000000000000000000000001" + "fd770000000000000000000000000011"
)

func area(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != GRHLen {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	return b
}

func TestInitAHFromWC(t *testing.T) {
	wc := WC{Flags: WCWithGRH, SL: 3}
	v4 := AHAttr{Port: 1, SL: 3, GRH: GRH{DGID: GIDFrom(netip.MustParseAddr("10.77.0.1")), SGIDIndex: 2, HopLimit: 64}}
	v6 := AHAttr{Port: 1, SL: 3, GRH: GRH{DGID: GIDFrom(netip.MustParseAddr("fd77::1")), SGIDIndex: 2, HopLimit: 64, FlowLabel: 0x7b520}}
	for _, tc := range []struct {
		name  string
		area  string
		spoil func(b []byte)
		want  AHAttr
	}{
		{"IPv4", areaIPv4, nil, v4},
		{"IPv6", areaIPv6, nil, v6},
		{"IPv4 with a service type", areaIPv4, func(b []byte) { b[21] = 0x6a }, with(v4, 0x6a)},
		{"IPv6 with a traffic class", areaIPv6, func(b []byte) { b[0], b[1] = 0x66, 0xa7 }, with(v6, 0x6a)},
		{"IPv4 behind bytes that look like IPv6", areaIPv4, func(b []byte) { copy(b[:20], "`garbage garbage gar") }, v4},
		{"IPv6 from an address that looks like IPv4", areaIPv6, func(b []byte) { b[20] = 0x45 }, func() AHAttr {
			a := v6
			a.GRH.DGID[12] = 0x45
			return a
		}()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := area(t, tc.area)
			if tc.spoil != nil {
				tc.spoil(b)
			}
			got, err := InitAHFromWC(1, 2, &wc, append(b, "payload"...))
			if err != nil || got != tc.want {
				t.Errorf("got %+v, %v\nwant %+v", got, err, tc.want)
			}
		})
	}
}

// An IPv6 header whose addresses happen to resemble an IPv4 header stays IPv6
// unless the resemblance is perfect.
func TestInitAHFromWCTellsIPv6FromAlmostIPv4(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(h []byte) // the twenty bytes, a valid IPv4 header
		v4    bool
	}{
		{"perfect", func([]byte) {}, true},
		{"other checksum", func(h []byte) { h[11]++ }, false},
		{"other protocol", func(h []byte) { h[9] -= 11; h[11] += 11 }, false},
		{"options", func(h []byte) { h[0]++; h[10]-- }, false},
		{"other version", func(h []byte) { h[0] += 0x10; h[10] -= 0x10 }, false},
	} {
		b := area(t, areaIPv6)
		copy(b[20:], area(t, areaIPv4)[20:])
		tc.spoil(b[20:])
		got, err := InitAHFromWC(1, 0, &WC{Flags: WCWithGRH}, b)
		if err != nil || got.GRH.DGID.Addr().Is4() != tc.v4 {
			t.Errorf("%s: got %v, %v; want IPv4 %v", tc.name, got.GRH.DGID, err, tc.v4)
		}
	}
}

func with(a AHAttr, tclass uint8) AHAttr {
	a.GRH.TrafficClass = tclass
	return a
}

func TestInitAHFromWCRefusesWhatHoldsNoHeader(t *testing.T) {
	ud := WC{Flags: WCWithGRH}
	for _, tc := range []struct {
		name string
		wc   WC
		area []byte
		says string
	}{
		{"not a datagram", WC{Flags: WCWithImm}, area(t, areaIPv6), "no global header"},
		{"short", ud, area(t, areaIPv6)[:GRHLen-1], "39 bytes"},
		{"empty", ud, nil, "0 bytes"},
		{"zeros", ud, make([]byte, GRHLen), "neither IPv4 nor IPv6"},
	} {
		got, err := InitAHFromWC(1, 0, &tc.wc, tc.area)
		var op *OpError
		if !errors.Is(err, ErrInvalid) || !errors.As(err, &op) || op.Op != "init_ah_from_wc" || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: error is %v", tc.name, err)
		}
		if got != (AHAttr{}) {
			t.Errorf("%s: refused, yet got %+v", tc.name, got)
		}
	}
}
