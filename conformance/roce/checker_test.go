package roce_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/conformance/roce"
)

var addressing = ib.Packet{}.Via(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")).To(0x11)

// check returns the violation that the checker reports for a packet.
func check(t *testing.T, w *roce.PacketChecker, p ib.Packet) error {
	t.Helper()
	parsed, err := ib.Parse(p.Or(addressing).Build())
	if err != nil {
		t.Fatal(err)
	}
	return rig.Catch(func() { w.Check(&rig.Rig{}, parsed) })
}

func newTestChecker() *roce.PacketChecker {
	return &roce.PacketChecker{PKey: 0xffff, PKeys: make(map[uint32]uint16)}
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
	w.PKeys[0x11] = 0x7001
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

const testBase, testRKey = 0x7f001000, 0x55

func TestResponderAnswersRequests(t *testing.T) {
	const first ib.PSN = 0xfffffe
	r := roce.NewResponder(first, 1024, testBase)
	read := ib.ReadRequest(first.Add(3), ib.At(testBase, testRKey, 1500))
	add := ib.FetchAdd(first.Add(5), ib.At(testBase, testRKey, 8), 1)
	responses := func(msn uint32) []ib.Packet { return ib.ReadResponses(first.Add(3), msn, r.Memory[:1500], 1024) }
	nak := func(k int, msn uint32) []ib.Packet {
		return []ib.Packet{ib.Nak(first.Add(k), ib.NakSequence, msn)}
	}
	ack := func(k int, msn uint32) []ib.Packet { return []ib.Packet{ib.Ack(first.Add(k), msn)} }
	atomicAck := []ib.Packet{ib.AtomicAck(first.Add(5), 3, 0)}

	steps := []struct {
		name    string
		request ib.Packet
		want    []ib.Packet
	}{
		{"FIRST without AckReq gets no ACK", ib.SendFirst(first, make([]byte, 1024)), nil},
		{"gap gets a NAK", ib.New(ib.OpSendLast, first.Add(2), []byte{1}).AckReq(), nak(1, 0)},
		{"same gap gets no second NAK", read, nil},
		{"missing packet gets an ACK", ib.New(ib.OpSendMiddle, first.Add(1), make([]byte, 1024)).AckReq(), ack(1, 0)},
		{"next gap gets a NAK", read, nak(2, 0)},
		{"LAST increments the MSN", ib.New(ib.OpSendLast, first.Add(2), []byte{1}).AckReq(), ack(2, 1)},
		{"READ gets responses", read, responses(2)},
		{"READ of two responses takes two PSNs", add, atomicAck},
		{"duplicate READ gets the responses again", read, responses(3)},
		{
			"duplicate of the end of a READ gets that part", ib.ReadRequest(first.Add(4), ib.At(testBase, testRKey, 1500).Skip(1024)),
			ib.ReadResponses(first.Add(4), 3, r.Memory[1024:1500], 1024),
		},
		{"duplicate atomic gets the original value again", add, atomicAck},
		{"duplicate SEND gets an ACK of the newest request", ib.New(ib.OpSendMiddle, first.Add(1), make([]byte, 1024)), ack(5, 3)},
	}
	for _, s := range steps {
		got := r.Respond(s.request)
		if !slices.EqualFunc(got, s.want, func(a, b ib.Packet) bool { return slices.Equal(a.Build(), b.Build()) }) {
			t.Errorf("%s: response to %v is %v, want %v", s.name, s.request, got, s.want)
		}
	}
}

// The ACK of a duplicate request must not have the PSN of a later READ.
func TestResponderDoesNotAckReads(t *testing.T) {
	r := roce.NewResponder(100, 1024, testBase)
	r.Respond(ib.SendOnly(100, nil))
	r.Respond(ib.ReadRequest(101, ib.At(testBase, testRKey, 8)))
	if got := r.Respond(ib.SendOnly(100, nil)); len(got) != 1 || got[0].PSN() != 100 {
		t.Errorf("response to the duplicate of 100 is %v, want an ACK with PSN 100", got)
	}
}
