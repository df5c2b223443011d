package ib

import (
	"bytes"
	"errors"
	"net/netip"
	"reflect"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

var (
	host11 = netip.MustParseAddr("10.77.0.11")
	host12 = netip.MustParseAddr("10.77.0.12")
)

var goldenREQ = REQ{
	LocalCommID: new(uint32(0xd8884002)), ServiceID: new(ServiceID(PortSpaceTCP, 7174)), LocalCAGUID: new(uint64(0x505400fffe770012)),
	QPN: new(uint32(0x1f)), StartingPSN: new(PSN(0x458185)), LocalGID: host12, RemoteGID: host11, FlowLabel: new(uint32(0x74922)),
	Private: AddrHeader{SrcPort: 0xbf64, Src: host12, Dst: host11}.Append(nil),
}

var goldenREP = REP{
	LocalCommID: new(uint32(0xcbb122a4)), RemoteCommID: new(uint32(0xd8884002)), QPN: new(uint32(0x1f)),
	StartingPSN: new(PSN(0x4bcf5b)), LocalCAGUID: new(uint64(0x505400fffe770011)),
}

var goldenSIDRREQ = SIDRREQ{
	RequestID: new(uint32(0xd9884002)), ServiceID: new(ServiceID(PortSpaceUDP, 7174)),
	Private: AddrHeader{SrcPort: 0xaef9, Src: host12, Dst: host11}.Append(nil),
}

var goldenSIDRREP = SIDRREP{
	RequestID: new(uint32(0xd9884002)), QPN: new(uint32(0x20)), ServiceID: new(ServiceID(PortSpaceUDP, 7174)), QKey: new(uint32(UDQKey)),
}

// TestREQAsCaptured parses a REQ of Linux, including the fields that goldenREQ leaves nil.
func TestREQAsCaptured(t *testing.T) {
	p, err := Parse(goldenPackets(t)[26].Data)
	if err != nil {
		t.Fatal(err)
	}
	h, m, err := p.CM()
	if err != nil {
		t.Fatal(err)
	}
	if *h.TID != 0x2024088d8 || *h.Attr != AttrREQ {
		t.Errorf("header %#x %v", *h.TID, *h.Attr)
	}
	want := goldenREQ
	want.RespResources, want.InitiatorDepth = new(uint8(1)), new(uint8(1))
	want.RemoteTimeout, want.LocalTimeout = new(uint8(20)), new(uint8(20))
	want.RetryCount, want.RNRRetryCount, want.MaxCMRetries = new(uint8(7)), new(uint8(7)), new(uint8(15))
	want.PKey, want.PathMTU, want.HopLimit, want.AckTimeout = new(uint16(0xffff)), new(uint8(3)), new(uint8(64)), new(uint8(17))
	want.LocalLID, want.RemoteLID = new(uint16(0xffff)), new(uint16(0xffff))
	want.Transport, want.SRQ, want.FlowControl = new(uint8(0)), new(false), new(false)
	if d := DiffCM(want, m); d != nil {
		t.Error(d)
	}
	addr, user, err := ParseAddrHeader(m.(REQ).Private)
	if err != nil || addr.Src != host12 || addr.Dst != host11 || addr.SrcPort != 48996 || len(user) != 56 {
		t.Errorf("address header %+v with %d bytes after it, %v", addr, len(user), err)
	}
}

func TestMessagesRoundTrip(t *testing.T) {
	// All fields differ, so that the test detects overlapping or swapped ones.
	for _, m := range []Message{REQ{}, MRA{}, REJ{}, REP{}, RTU{}, DREQ{}, DREP{}, SIDRREQ{}, SIDRREP{}, LAP{}, APR{}} {
		body := make([]byte, 232)
		for i := range body {
			body[i] = byte(7*i + 1)
		}
		first, err := parseMessage(m.attr(), body)
		if err != nil {
			t.Fatal(err)
		}
		h, second, err := CM(5, first).CM()
		if err != nil {
			t.Fatal(err)
		}
		if *h.Attr != m.attr() || reflect.TypeOf(second) != reflect.TypeOf(m) {
			t.Errorf("%v decodes to %v, %T", m.attr(), *h.Attr, second)
		}
		if !reflect.DeepEqual(first, second) {
			t.Errorf("%v: %+v decodes to %+v", m.attr(), first, second)
		}
		if d := DiffCM(first, second); d != nil {
			t.Errorf("%v: %v", m.attr(), d)
		}
	}
}

// Private data ends each message: the test detects a layout that is off by a byte.
func TestPrivateDataFillsTheMAD(t *testing.T) {
	last := func(n int) []byte { return append(make([]byte, n-1), 0xee) }
	for n, m := range map[int]Message{
		92: REQ{Private: last(92)}, 222: MRA{Private: last(222)}, 148: REJ{Private: last(148)}, 196: REP{Private: last(196)},
		224: RTU{Private: last(224)}, 220: DREQ{Private: last(220)}, 216: SIDRREQ{Private: last(216)}, 136: SIDRREP{Private: last(136)},
	} {
		b := CM(1, m).Payload
		if len(b) != MADLen || b[MADLen-1] != 0xee {
			t.Errorf("%v: %d bytes of private data end at %d of %d", m.attr(), n, bytes.IndexByte(b, 0xee)+1, len(b))
		}
	}
}

func TestDiffCM(t *testing.T) {
	got := REP{LocalCommID: new(uint32(1)), RemoteCommID: new(uint32(2)), QPN: new(uint32(0x11)), Private: []byte{1, 2}}
	if d := DiffCM(REP{RemoteCommID: new(uint32(2)), Private: []byte{1, 2, 0}}, got); d != nil {
		t.Errorf("an expected message differs: %v", d)
	}
	d := DiffCM(REP{RemoteCommID: new(uint32(3))}, got)
	if want := "REP RemoteCommID: want 0x00000003, got 0x00000002"; d.String() != want {
		t.Errorf("%v, want %s", d, want)
	}
	if d := DiffCM(RTU{}, got); len(d) != 1 || d[0].Want != "RTU" || d[0].Got != "REP" {
		t.Errorf("RTU against REP: %v", d)
	}
	if d := DiffCM(RTU{}, nil); len(d) != 1 {
		t.Errorf("RTU against nil: %v", d)
	}
}

func TestCMRejectsOtherPackets(t *testing.T) {
	for name, p := range map[string]Packet{
		"not a datagram":     SendOnly(1, make([]byte, 256)),
		"short":              Datagram(1, GSIQKey, 1, make([]byte, 255)),
		"another class":      CMWith(MAD{Class: new(uint8(4))}, RTU{}),
		"an unknown message": CMWith(MAD{Attr: new(Attr(0x1b))}, RTU{}),
	} {
		if _, _, err := p.CM(); !errors.Is(err, ErrNotCM) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAddrHeader(t *testing.T) {
	ipv6 := AddrHeader{SrcPort: 7, Src: netip.MustParseAddr("fd77::1"), Dst: netip.MustParseAddr("fd77::2")}
	b := append(ipv6.Append(nil), "user"...)
	if b[1] != 0x60 {
		t.Errorf("second byte %#02x", b[1])
	}
	got, user, err := ParseAddrHeader(b)
	ipv6.IPVersion = 6
	if err != nil || got != ipv6 || string(user) != "user" {
		t.Errorf("%+v %q %v", got, user, err)
	}
	invalid := AddrHeader{Version: 1, IPVersion: 5, Src: host11, Dst: host12}.Append(nil)
	if got, _, err := ParseAddrHeader(invalid); err == nil || got.Version != 1 {
		t.Errorf("IP version 5: %+v, %v", got, err)
	}
	if _, _, err := ParseAddrHeader(b[:35]); !errors.Is(err, packet.ErrShort) {
		t.Errorf("35 bytes: %v", err)
	}
}
