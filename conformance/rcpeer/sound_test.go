package rcpeer

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

var way = ib.Packet{}.Via(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")).To(0x11)

// judged is what a watch of a device with the default partition says of a packet.
func judged(t *testing.T, w *Watch, p ib.Packet) error {
	t.Helper()
	parsed, err := ib.Parse(p.Or(way).Build())
	if err != nil {
		t.Fatal(err)
	}
	return rig.Caught(func() { w.Sound(&rig.Rig{}, parsed) })
}

func newTestWatch() *Watch { return &Watch{pkey: 0xffff, others: make(map[uint32]uint16)} }

func becn(p ib.Packet) ib.Packet { p.BTH.BECN = new(true); return p }

func TestSoundPacketsPass(t *testing.T) {
	for _, p := range []ib.Packet{
		ib.Ack(1, 1), ib.Nak(1, ib.NakSequence, 0), ib.RNR(1, 12, 0), ib.AtomicAck(1, 1, 7), ib.ReadResponseOnly(1, 1, []byte{1}),
		ib.SendOnly(1, []byte{1, 2, 3}).SE().AckReq(), ib.WriteOnly(1, ib.At(0, 1, 0), nil),
		ib.CNP().WithPKey(0x7fff), // that of the packet that was marked, and with BECN
		ib.Datagram(1, ib.GSIQKey, ib.GSIQPN, make([]byte, 256)).To(ib.GSIQPN).WithPKey(0x8001),
	} {
		if err := judged(t, newTestWatch(), p); err != nil {
			t.Errorf("%v: %v", p, err)
		}
	}
}

func TestFaultsEndTheCase(t *testing.T) {
	for says, p := range map[string]ib.Packet{
		"the ICRC is right":                   ib.Ack(1, 1).BadICRC(),
		"TVer is 0":                           ib.Ack(1, 1).WithTVer(3),
		"reserved bits are 0":                 ib.Ack(1, 1).WithReserved(0, 1),
		"do not ask for acknowledgements":     ib.Ack(1, 1).AckReq(),
		"is solicited":                        ib.Ack(1, 1).SE(),
		"as long as the opcode allows":        ib.Ack(1, 1).WithPayload(make([]byte, 4)),
		"the P_Key of the queue pair, 0xffff": ib.Ack(1, 1).WithPKey(0x7fff),
		"no word of congestion":               becn(ib.Ack(1, 1)),
	} {
		err := judged(t, newTestWatch(), p)
		if !conformance.IsViolation(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want %q", p, err, says)
		}
	}
}

func TestWhatAWatchIsTold(t *testing.T) {
	w := newTestWatch()
	w.Expect(0x11, 0x7001)
	if err := judged(t, w, ib.Ack(1, 1).WithPKey(0x7001)); err != nil {
		t.Error("the P_Key that was told:", err)
	}
	if judged(t, w, ib.Ack(1, 1)) == nil {
		t.Error("the P_Key of others passes")
	}
	if err := judged(t, w, ib.Ack(1, 1).To(0x12)); err != nil {
		t.Error("another queue pair:", err)
	}
	w = newTestWatch()
	w.Sent(ib.SendOnly(1, nil).WithTClass(2))
	if judged(t, w, becn(ib.Ack(1, 1))) == nil {
		t.Error("BECN passes where nothing was marked")
	}
	w.Sent(ib.SendOnly(1, nil).CE())
	if err := judged(t, w, becn(ib.Ack(1, 1))); err != nil {
		t.Error("BECN behind a mark:", err)
	}
}
