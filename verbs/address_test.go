package verbs_test

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	. "github.com/fabrictest/fabrictest/verbs"
)

func TestMTUBytes(t *testing.T) {
	for m, want := range []int{0, 256, 512, 1024, 2048, 4096, 0} {
		if got := MTU(m).Bytes(); got != want {
			t.Errorf("MTU(%d) is %d bytes, want %d", m, got, want)
		}
	}
	if got := MTU(1 << 31).Bytes(); got != 0 {
		t.Errorf("an invalid MTU has %d bytes, want 0", got)
	}
	if got := MTU1024.String(); got != "1024" {
		t.Errorf("MTU1024 prints %q", got)
	}
}

func TestMTUForReturnsLargestThatFits(t *testing.T) {
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

func TestGIDConvertsToAndFromIPAddress(t *testing.T) {
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
			t.Errorf("GID of %s has address %v and prints %s", a, g.Addr(), g)
		}
	}
	if g := GIDFrom(netip.MustParseAddr("::ffff:10.77.0.1")); g.Addr() != netip.MustParseAddr("10.77.0.1") {
		t.Errorf("GID of an IPv4-mapped address has address %v, want IPv4", g.Addr())
	}
}

// GRHs of received datagrams, as the Linux rxe driver wrote them.
const (
	grhIPv4 = "0000000000000000000000000000000000000000" + "4500003800004000401126100a4d00010a4d000b"
	grhIPv6 = "6007b52000241140" + "fd770000000000000000000000000001" + "fd770000000000000000000000000011"
)

func decodeGRH(t *testing.T, s string) []byte {
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
		name   string
		grh    string
		modify func(b []byte)
		want   AHAttr
	}{
		{"IPv4", grhIPv4, nil, v4},
		{"IPv6", grhIPv6, nil, v6},
		{"IPv4 with a TOS field", grhIPv4, func(b []byte) { b[21] = 0x6a }, withTrafficClass(v4, 0x6a)},
		{"IPv6 with a traffic class", grhIPv6, func(b []byte) { b[0], b[1] = 0x66, 0xa7 }, withTrafficClass(v6, 0x6a)},
		{"IPv4 after bytes that look like IPv6", grhIPv4, func(b []byte) { copy(b[:20], "`garbage garbage gar") }, v4},
		{"IPv6 from an address that looks like IPv4", grhIPv6, func(b []byte) { b[20] = 0x45 }, func() AHAttr {
			a := v6
			a.GRH.DGID[12] = 0x45
			return a
		}()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := decodeGRH(t, tc.grh)
			if tc.modify != nil {
				tc.modify(b)
			}
			got, err := InitAHFromWC(1, 2, &wc, append(b, "payload"...))
			if err != nil || got != tc.want {
				t.Errorf("got %+v, %v\nwant %+v", got, err, tc.want)
			}
		})
	}
}

// An IPv6 header is taken for IPv4 only if its last 20 bytes are a valid IPv4 header.
func TestInitAHFromWCDistinguishesIPv6FromIPv4(t *testing.T) {
	for _, tc := range []struct {
		name   string
		modify func(h []byte) // changes a valid IPv4 header
		v4     bool
	}{
		{"valid", func([]byte) {}, true},
		{"other checksum", func(h []byte) { h[11]++ }, false},
		{"other protocol", func(h []byte) { h[9] -= 11; h[11] += 11 }, false},
		{"options", func(h []byte) { h[0]++; h[10]-- }, false},
		{"other version", func(h []byte) { h[0] += 0x10; h[10] -= 0x10 }, false},
	} {
		b := decodeGRH(t, grhIPv6)
		copy(b[20:], decodeGRH(t, grhIPv4)[20:])
		tc.modify(b[20:])
		got, err := InitAHFromWC(1, 0, &WC{Flags: WCWithGRH}, b)
		if err != nil || got.GRH.DGID.Addr().Is4() != tc.v4 {
			t.Errorf("%s: got %v, %v; want IPv4 %v", tc.name, got.GRH.DGID, err, tc.v4)
		}
	}
}

func withTrafficClass(a AHAttr, tclass uint8) AHAttr {
	a.GRH.TrafficClass = tclass
	return a
}

func TestInitAHFromWCRejectsBufferWithoutGRH(t *testing.T) {
	ud := WC{Flags: WCWithGRH}
	for _, tc := range []struct {
		name string
		wc   WC
		grh  []byte
		text string // part of the error
	}{
		{"not a datagram", WC{Flags: WCWithImm}, decodeGRH(t, grhIPv6), "no GRH"},
		{"short", ud, decodeGRH(t, grhIPv6)[:GRHLen-1], "39 bytes"},
		{"empty", ud, nil, "0 bytes"},
		{"zeros", ud, make([]byte, GRHLen), "neither IPv4 nor IPv6"},
	} {
		got, err := InitAHFromWC(1, 0, &tc.wc, tc.grh)
		var op *OpError
		if !errors.Is(err, ErrInvalid) || !errors.As(err, &op) || op.Op != "init_ah_from_wc" || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: error is %v", tc.name, err)
		}
		if got != (AHAttr{}) {
			t.Errorf("%s: got %+v with the error", tc.name, got)
		}
	}
}

func TestAckTimeoutCodesRoundUp(t *testing.T) {
	for code := uint8(1); code < 32; code++ {
		d := AckTimeout(code)
		if got, above := AckTimeoutFor(d), AckTimeoutFor(d+1); got != code || above != min(code+1, 31) {
			t.Errorf("the codes of %v and a nanosecond more are %d and %d, want %d and %d", d, got, above, code, min(code+1, 31))
		}
	}
	if got := AckTimeout(16); got != 268435456*time.Nanosecond {
		t.Errorf("code 16 is %v", got)
	}
}
