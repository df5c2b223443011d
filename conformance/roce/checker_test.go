package roce

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

var addressing = ib.Packet{}.Via(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")).To(0x11)

// check returns the violation that the checker reports for a packet.
func check(t *testing.T, w *PacketChecker, p ib.Packet) error {
	t.Helper()
	parsed, err := ib.Parse(p.Or(addressing).Build())
	if err != nil {
		t.Fatal(err)
	}
	return rig.Catch(func() { w.Check(&rig.Rig{}, parsed) })
}

func newTestChecker() *PacketChecker {
	return &PacketChecker{pkey: 0xffff, pkeys: make(map[uint32]uint16)}
}

func withBECN(p ib.Packet) ib.Packet { p.BTH.BECN = new(true); return p }

func TestCheckerAcceptsValidPackets(t *testing.T) {
	for _, p := range []ib.Packet{
		ib.Ack(1, 1), ib.Nak(1, ib.NakSequence, 0), ib.RNR(1, 12, 0), ib.AtomicAck(1, 1, 7), ib.ReadResponseOnly(1, 1, []byte{1}),
		ib.SendOnly(1, []byte{1, 2, 3}).SE().AckReq(), ib.WriteOnly(1, ib.At(0, 1, 0), nil),
		ib.CNP().WithPKey(0x7fff), // with BECN, and the P_Key of the marked packet
		ib.Datagram(1, ib.GSIQKey, ib.GSIQPN, make([]byte, 256)).To(ib.GSIQPN).WithPKey(0x8001),
	} {
		if err := check(t, newTestChecker(), p); err != nil {
			t.Errorf("%v: %v", p, err)
		}
	}
}

func TestCheckerReportsFaults(t *testing.T) {
	for want, p := range map[string]ib.Packet{
		"the ICRC is right":                   ib.Ack(1, 1).BadICRC(),
		"TVer is 0":                           ib.Ack(1, 1).WithTVer(3),
		"reserved bits are 0":                 ib.Ack(1, 1).WithReserved(0, 1),
		"do not ask for acknowledgements":     ib.Ack(1, 1).AckReq(),
		"is solicited":                        ib.Ack(1, 1).SE(),
		"as long as the opcode allows":        ib.Ack(1, 1).WithPayload(make([]byte, 4)),
		"the P_Key of the queue pair, 0xffff": ib.Ack(1, 1).WithPKey(0x7fff),
		"no FECN or BECN":                     withBECN(ib.Ack(1, 1)),
	} {
		err := check(t, newTestChecker(), p)
		if !conformance.IsViolation(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", p, err, want)
		}
	}
}

func TestCheckerUsesExpectedPKeyAndMarks(t *testing.T) {
	w := newTestChecker()
	w.ExpectPKey(0x11, 0x7001)
	if err := check(t, w, ib.Ack(1, 1).WithPKey(0x7001)); err != nil {
		t.Error("the expected P_Key:", err)
	}
	if check(t, w, ib.Ack(1, 1)) == nil {
		t.Error("the default P_Key passes")
	}
	if err := check(t, w, ib.Ack(1, 1).To(0x12)); err != nil {
		t.Error("another queue pair:", err)
	}
	w = newTestChecker()
	w.PacketSent(ib.SendOnly(1, nil).WithTClass(2))
	if check(t, w, withBECN(ib.Ack(1, 1))) == nil {
		t.Error("BECN passes although no packet was marked")
	}
	w.PacketSent(ib.SendOnly(1, nil).CE())
	if err := check(t, w, withBECN(ib.Ack(1, 1))); err != nil {
		t.Error("BECN after a mark:", err)
	}
}

func TestEveryDescriptionHasACase(t *testing.T) {
	if ids := described.Unused(Suite().Cases); len(ids) > 0 {
		t.Errorf("cases.txt describes cases that do not exist: %v", ids)
	}
}
