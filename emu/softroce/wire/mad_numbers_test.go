package wire

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

func TestServiceIDs(t *testing.T) {
	for _, tc := range []struct {
		id   ServiceID
		want uint64
		text string
	}{
		{IPService(PortSpaceTCP, 7174), 0x0000000001061c06, "service tcp:7174"},
		{IPService(PortSpaceUDP, 7174), 0x0000000001111c06, "service udp:7174"},
		{IPService(PortSpaceIB, 65535), 0x00000000013fffff, "service ib:65535"},
		{IPService(PortSpaceIPoIB, 1), 0x0000000001020001, "service ipoib:1"},
		{IPService(0x99, 1), 0x0000000001990001, "service 0x99:1"},
	} {
		if uint64(tc.id) != tc.want || tc.id.String() != tc.text || !tc.id.IsIP() {
			t.Errorf("%#x %q, want %#x %q", uint64(tc.id), tc.id, tc.want, tc.text)
		}
	}
	for _, id := range []ServiceID{0, 0x0000000002061c06, 0x0100000001061c06, 0x1000000000000001} {
		if id.IsIP() || !strings.HasPrefix(id.String(), "service 0x") {
			t.Errorf("%v is taken for an IP service", id)
		}
	}
	if id := IPService(PortSpaceUDP, 80); id.PortSpace() != PortSpaceUDP || id.Port() != 80 {
		t.Errorf("%v: space %v, port %d", id, id.PortSpace(), id.Port())
	}
}

func TestStrings(t *testing.T) {
	for got, want := range map[string]string{
		ReasonInvalidServiceID.String(): "invalid service ID",
		REJReason(0).String():           "reason 0",
		REJReason(34).String():          "reason 34",
		ReasonVendorOption.String():     "vendor option not supported",
		REJReason(999).String():         "reason 999",
		SIDRNoQP.String():               "no QP available",
		SIDRStatus(77).String():         "SIDR status 77",
		APUnsupported.String():          "alternate path not supported",
		APStatus(50).String():           "AP status 50",
		AttrSIDRREP.String():            "SIDR_REP",
		AttrAPR.String():                "APR",
		Attr(0x0f).String():             "attribute 0x000f",
		Attr(0x1b).String():             "attribute 0x001b",
		AboutREP.String():               "REP",
		AboutREQ.String():               "REQ",
		AboutOther.String():             "other",
		About(3).String():               "message 3",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for r := ReasonNoQP; r <= ReasonAlternateFlowLabel; r++ {
		if strings.HasPrefix(r.String(), "reason") {
			t.Errorf("reason %d has no name", uint16(r))
		}
	}
}

func TestTimeoutCodes(t *testing.T) {
	for code, want := range map[uint8]time.Duration{
		0: 4096, 17: 536870912, 20: 4294967296, 24: 68719476736, 31: 8796093022208, 32: 4096,
	} {
		if got := CMTimeout(code); got != want {
			t.Errorf("CMTimeout(%d) = %d ns, want %d", code, got, want)
		}
	}
}

func TestGIDs(t *testing.T) {
	for s, want := range map[string]string{
		"10.77.0.11":     "00000000000000000000ffff0a4d000b",
		"fd77::11":       "fd770000000000000000000000000011",
		"::ffff:1.2.3.4": "00000000000000000000ffff01020304",
	} {
		a := netip.MustParseAddr(s)
		g := GIDOf(a)
		if got := hex.EncodeToString(g[:]); got != want || g.Addr() != a.Unmap() || g.String() != a.Unmap().String() {
			t.Errorf("GIDOf(%s) = %s, back %v", s, got, g)
		}
	}
	if GIDOf(netip.Addr{}) != (GID{}) {
		t.Error("the zero Addr has a GID")
	}
}

func TestFillLimits(t *testing.T) {
	field := []byte{9, 9, 9, 9}
	if err := FillField(field, []byte{1, 2}); err != nil || string(field) != "\x01\x02\x00\x00" {
		t.Errorf("FillField = %v, %x", err, field)
	}
	if err := FillField(field, []byte{1, 2, 3, 4, 5}); !errors.Is(err, ErrTooLong) || string(field) != "\x01\x02\x00\x00" {
		t.Errorf("FillField = %v, %x: want ErrTooLong and the field untouched", err, field)
	}
}

func TestRejectInfo(t *testing.T) {
	var m REJ
	must.Fail(t, "SetInfo(73 bytes)", m.SetInfo(make([]byte, 73)), ErrTooLong)
	if err := m.SetInfo([]byte("abc")); err != nil || string(m.AdditionalInfo()) != "abc" {
		t.Errorf("SetInfo = %v, info %q", err, m.AdditionalInfo())
	}
	m.InfoLen = 127 // more than the field REJInfoLen allows
	if got := len(m.AdditionalInfo()); got != REJInfoLen {
		t.Errorf("info of %d bytes, want %d", got, REJInfoLen)
	}
}

func TestCMAHeaderFamilies(t *testing.T) {
	v6a, v6b := netip.MustParseAddr("fd77::1"), netip.MustParseAddr("fd77::11")
	h := NewCMAHeader(v6a, v6b, 5)
	b := h.Append(nil)
	if b[0] != 0 || b[1] != 0x60 || len(b) != CMAHeaderLen {
		t.Fatalf("%x", b)
	}
	var back CMAHeader
	if rest, err := back.Parse(b); err != nil || len(rest) != 0 || back != h {
		t.Fatalf("Parse = %v, %+v", err, back)
	}
	if back.SrcAddr() != v6a || back.DstAddr() != v6b {
		t.Errorf("%v to %v", back.SrcAddr(), back.DstAddr())
	}
	back.IPVersion = 5
	if back.SrcAddr().IsValid() || back.DstAddr().IsValid() {
		t.Error("IP version 5 has addresses")
	}
}
