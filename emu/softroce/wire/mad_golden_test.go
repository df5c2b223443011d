package wire

import (
	"encoding/hex"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

// golden returns a whole MAD: the given bytes, then zeros.
func golden(t testing.TB, s string) []byte {
	t.Helper()
	b := must.Get(hex.DecodeString(s))(t)
	if len(b) > MADLen {
		t.Fatalf("golden MAD of %d bytes", len(b))
	}
	return append(b, make([]byte, MADLen-len(b))...)
}

// MADs of Linux soft-RoCE, without trailing zeros.
const (
	goldenREQ     = "010702030000000000000002024088d80010000000000000d8884002000000000000000001061c06505400fffe770012000000000000000000001f0100000001000000a0458185a7ffff37f0ffffffff00000000000000000000ffff0a4d000c00000000000000000000ffff0a4d000b749220000040008800000000000000000000000000000000000000000000000000000000000000000000000000000000000000000040bf640000000000000000000000000a4d000c0000000000000000000000000a4d000b"
	goldenREP     = "010702030000000000000002024088d80013000000000000cbb122a4d88840020000000000001f00000000004bcf5b00010178e0505400fffe770011"
	goldenRTU     = "010702030000000000000002024088d80014000000000000d8884002cbb122a4"
	goldenDREQ    = "010702030000000000000002024088d80015000000000000d8884002cbb122a400001f"
	goldenDREP    = "010702030000000000000002024088d80016000000000000cbb122a4d8884002"
	goldenSIDRREQ = "010702030000000000000002024088d90017000000000000d9884002ffff00000000000001111c060040aef90000000000000000000000000a4d000c0000000000000000000000000a4d000b"
	goldenSIDRREP = "010702030000000000000002024088d90018000000000000d988400200000000000020000000000001111c0601234567"
	goldenREJ     = "010702030000000000000000000011220012000000000000000000000102030400000008"
)

var (
	guest11 = netip.MustParseAddr("10.77.0.11")
	guest12 = netip.MustParseAddr("10.77.0.12")
)

func privateWith(n int, data []byte) []byte { return append(data, make([]byte, n-len(data))...) }

// goldenMessages returns the fields of each golden MAD.
func goldenMessages() []struct {
	hex  string
	tid  uint64
	attr Attr
	want body
} {
	const tid = 0x02024088d8
	conn := NewCMAHeader(guest12, guest11, 0xbf64)
	sidr := NewCMAHeader(guest12, guest11, 0xaef9)
	return []struct {
		hex  string
		tid  uint64
		attr Attr
		want body
	}{
		{goldenREQ, tid, AttrREQ, &REQ{
			LocalCommID: 0xd8884002, ServiceID: IPService(PortSpaceTCP, 7174), LocalCAGUID: 0x505400fffe770012,
			LocalQPN: 0x1f, RespRes: 1, InitDepth: 1, RemoteRespTimeout: 20, Transport: CMTransportRC,
			StartPSN: 0x458185, LocalRespTimeout: 20, RetryCount: 7, PKey: 0xffff, MTU: 3, RNRRetry: 7, MaxCMRetries: 15,
			Primary: CMPath{
				LocalLID: LIDNone, RemoteLID: LIDNone, LocalGID: GIDOf(guest12), RemoteGID: GIDOf(guest11),
				FlowLabel: 0x74922, HopLimit: 64, AckTimeout: 17,
			},
			PrivateData: [REQPrivateLen]byte(privateWith(REQPrivateLen, conn.Append(nil))),
		}},
		{goldenREP, tid, AttrREP, &REP{
			LocalCommID: 0xcbb122a4, RemoteCommID: 0xd8884002, LocalQPN: 0x1f, StartPSN: 0x4bcf5b,
			RespRes: 1, InitDepth: 1, TargetAckDelay: 15, RNRRetry: 7, LocalCAGUID: 0x505400fffe770011,
		}},
		{goldenRTU, tid, AttrRTU, &RTU{LocalCommID: 0xd8884002, RemoteCommID: 0xcbb122a4}},
		{goldenDREQ, tid, AttrDREQ, &DREQ{LocalCommID: 0xd8884002, RemoteCommID: 0xcbb122a4, RemoteQPN: 0x1f}},
		{goldenDREP, tid, AttrDREP, &DREP{LocalCommID: 0xcbb122a4, RemoteCommID: 0xd8884002}},
		{goldenSIDRREQ, tid + 1, AttrSIDRREQ, &SIDRREQ{
			RequestID: 0xd9884002, PKey: 0xffff, ServiceID: IPService(PortSpaceUDP, 7174),
			PrivateData: [SIDRREQPrivateLen]byte(privateWith(SIDRREQPrivateLen, sidr.Append(nil))),
		}},
		{goldenSIDRREP, tid + 1, AttrSIDRREP, &SIDRREP{
			RequestID: 0xd9884002, Status: SIDRValid, QPN: 0x20, ServiceID: IPService(PortSpaceUDP, 7174), QKey: UDQKey,
		}},
		{goldenREJ, 0x1122, AttrREJ, &REJ{RemoteCommID: 0x01020304, About: AboutREQ, Reason: ReasonInvalidServiceID}},
	}
}

func TestGoldenVectorsDecodeAndEncode(t *testing.T) {
	for _, g := range goldenMessages() {
		b := golden(t, g.hex)
		var h MADHeader
		rest, err := h.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if want := NewMADHeader(g.attr, g.tid); h != want {
			t.Errorf("%v: header %+v, want %+v", g.attr, h, want)
		}
		got := kindOf(g.attr).new()
		if rest, err = got.Parse(rest); err != nil || len(rest) != 0 {
			t.Fatalf("%v: Parse left %d bytes, %v", g.attr, len(rest), err)
		}
		if !equal(got, g.want) {
			t.Errorf("%v:\n got %+v\nwant %+v", g.attr, got, g.want)
		}
		if enc := g.want.Append(NewMADHeader(g.attr, g.tid).Append(nil)); hex.EncodeToString(enc) != hex.EncodeToString(b) {
			t.Errorf("%v encodes to\n %x, want\n %x", g.attr, enc, b)
		}
	}
}

func TestCMAHeaderOfGoldenREQ(t *testing.T) {
	var req REQ
	must.Get(req.Parse(golden(t, goldenREQ)[MADHeaderLen:]))(t)
	var ip CMAHeader
	user := must.Get(ip.Parse(req.PrivateData[:]))(t)
	if ip.Version != CMAHeaderVersion || ip.IPVersion != 4 || ip.SrcPort != 48996 ||
		ip.SrcAddr() != guest12 || ip.DstAddr() != guest11 {
		t.Errorf("header %+v", ip)
	}
	if len(user) != 56 {
		t.Errorf("%d bytes of private data for the application, want 56", len(user))
	}
	if got := FlowLabel(ip.SrcPort, req.ServiceID.Port()); got != req.Primary.FlowLabel {
		t.Errorf("FlowLabel = %#x, the wire has %#x", got, req.Primary.FlowLabel)
	}
	if got := CMTimeout(req.RemoteRespTimeout); got != 4294967296*time.Nanosecond {
		t.Errorf("CMTimeout(20) = %v", got)
	}
}
