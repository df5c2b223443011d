package dgwire

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// rig is a sound NIC that the tests play themselves, with an Edge around it. What
// comes through the Edge is written down.
type rig struct {
	edge  *Edge
	qps   []QP
	ready []link.Datagram // what the NIC has to send
	log   []string
}

var (
	ownAddr  = netip.MustParseAddrPort("10.0.0.1:65041")
	peerAddr = netip.MustParseAddrPort("10.0.0.9:65041")
)

// The NIC's queue pairs, that of its peer, and the key of all.
const (
	udQP, rdQP, peerQP = 0x11, 0x12, 0x21
	testKey            = 0xcafe
	testEpoch          = 0x1000
)

func newRig(q Defects) *rig {
	r := &rig{qps: []QP{{Num: udQP, Key: testKey}, {Num: rdQP, Key: testKey, Reliable: true}}}
	r.edge = New(q, r)
	return r
}

// Input notes what the NIC gets.
func (r *rig) Input(_ mono.Time, d *link.Datagram) { r.log = append(r.log, "got "+render(d)) }

// Output sends what the test had the NIC make.
func (r *rig) Output(_ mono.Time, ds []link.Datagram) int {
	n := copy(ds, r.ready)
	r.ready = r.ready[n:]
	return n
}

func (r *rig) QPs() []QP { return r.qps }

// in has a packet of the peer's arrive.
func (r *rig) in(k wire.Packet, edits ...func(*link.Datagram)) {
	r.arrive(r.made(k, peerAddr, ownAddr, edits))
}

func (r *rig) arrive(d link.Datagram) { r.edge.Input(0, &d) }

// out has the NIC send a packet, and notes what leaves.
func (r *rig) out(k wire.Packet, edits ...func(*link.Datagram)) {
	k.DstQP, k.SrcQP = k.SrcQP, k.DstQP
	r.ready = append(r.ready, r.made(k, ownAddr, peerAddr, edits))
	r.hear()
}

func (r *rig) made(k wire.Packet, from, to netip.AddrPort, edits []func(*link.Datagram)) link.Datagram {
	d := link.Datagram{Src: from, Dst: to, HopLimit: 64, Payload: k.Append(nil)}
	for _, e := range edits {
		e(&d)
	}
	return d
}

// hear notes what leaves.
func (r *rig) hear() {
	ds := make([]link.Datagram, 4)
	for n := r.edge.Output(0, ds); n > 0; n = r.edge.Output(0, ds) {
		for i := range ds[:n] {
			r.log = append(r.log, "sent "+render(&ds[i]))
		}
	}
}

// A packet of the peer's, for the NIC's queue pair of its service. out turns it
// around.

func ud(segment []byte) wire.Packet {
	return wire.Packet{Header: wire.NewHeader(wire.KindUD, udQP, peerQP, testKey), ULPDU: segment}
}

func rdPacket(flags wire.Flags, seq wire.Seq, segment []byte) wire.Packet {
	k := wire.Packet{Header: wire.NewHeader(wire.KindRD, rdQP, peerQP, testKey), ULPDU: segment}
	k.Flags = flags
	k.Data = wire.Data{Epoch: testEpoch, Seq: seq}
	k.Ack = wire.Ack{Epoch: testEpoch, Window: wire.Window}
	return k
}

func data(seq wire.Seq, more ...wire.Flags) wire.Packet {
	flags := wire.FlagData
	for _, f := range more {
		flags |= f
	}
	return rdPacket(flags, seq, send(1, 0, 4, true))
}

func ack(next wire.Seq, sack uint32) wire.Packet {
	k := rdPacket(wire.FlagAck, 0, nil)
	k.Ack.Next = next
	if sack != 0 {
		k.Ack.Words, k.Ack.Sack[0] = 1, sack
	}
	return k
}

func challenge(incarnation uint32) wire.Packet {
	return wire.Packet{
		Header:    wire.NewHeader(wire.KindChallenge, rdQP, peerQP, testKey),
		Challenge: wire.Challenge{Epoch: testEpoch, Incarnation: incarnation, Cookie: 7},
	}
}

func refusal(why wire.Reason) wire.Packet {
	return wire.Packet{Header: wire.NewHeader(wire.KindRefusal, rdQP, peerQP, testKey), Refusal: wire.Refusal{Epoch: testEpoch, Reason: why}}
}

func with(k wire.Packet, f func(*wire.Packet)) wire.Packet {
	f(&k)
	return k
}

// Segments.

func untagged(op ddp.Opcode, u ddp.Untagged, body []byte, last bool) []byte {
	h := ddp.Header{Control: ddp.NewControl(op, last), Untagged: u}
	return append(h.Append(nil), body...)
}

func send(msn ddp.MSN, mo uint32, n int, last bool) []byte {
	return untagged(ddp.OpSend, ddp.Untagged{MSN: msn, MO: mo}, make([]byte, n), last)
}

func tagged(op ddp.Opcode, to uint64, body []byte, last bool) []byte {
	h := ddp.Header{Control: ddp.NewControl(op, last), Tagged: ddp.Tagged{STag: 5, TO: to}}
	h.Control.Tagged = true
	return append(h.Append(nil), body...)
}

func write(to uint64, n int, last bool) []byte { return tagged(ddp.OpWrite, to, make([]byte, n), last) }

func record(msn, mo uint32, n int) []byte {
	h := wire.WriteRecord{MSN: msn, MO: mo, Length: uint32(n)}
	return tagged(wire.OpWriteRecord, 0, append(h.Append(nil), make([]byte, n)...), true)
}

func terminate() []byte {
	t := ddp.Terminate{Error: ddp.TermTaggedSTag, HasLength: true, HasDDP: true, SegmentLength: 22}
	return untagged(ddp.OpTerminate, ddp.Untagged{QN: ddp.QueueTerminate, MSN: 1}, t.Append(nil), true)
}

// render prints what a packet says, as far as it is not as usual.
func render(d *link.Datagram) string {
	b := d.Payload
	var k wire.Packet
	err := k.Parse(b)
	s := strings.ToLower(k.Kind.String())
	say := func(on bool, format string, args ...any) {
		if on {
			s += fmt.Sprintf(" "+format, args...)
		}
	}
	say(k.Flags.Has(wire.FlagAck), "ack %d/%x", k.Ack.Next, k.Ack.Sack[:min(k.Ack.Words, wire.MaxSackWords)])
	say(k.Flags.Has(wire.FlagData), "seq %d", k.Data.Seq)
	for i, name := range []string{"now", "marked", "repeats"} {
		say(k.Flags.Has(wire.FlagAckNow>>i), "%s", name)
	}
	say(k.Flags.Has(wire.FlagStart), "start of life %d", k.Data.Incarnation)
	say(k.Data.SourceKey != 0, "source key %#x", k.Data.SourceKey)
	say(k.Kind == wire.KindChallenge, "of life %d", k.Challenge.Incarnation)
	say(k.Kind == wire.KindRefusal, "%d", k.Refusal.Reason)
	reserved := fmt.Sprintf("%x %x %x %x", uint8(k.Flags)&3, k.Reserved, k.Ack.Reserved, k.Refusal.Reserved)
	say(reserved != "0 0 0 000000", "reserved %s", reserved)
	say(k.Key != testKey, "key %#x", k.Key)
	say(k.DstQP != udQP && k.DstQP != rdQP && k.DstQP != peerQP, "to QP %#x", k.DstQP)
	say(k.ULPDU != nil, "%s", segmentText(k.ULPDU))
	say(d.TClass != 0, "class %#x", d.TClass)
	say(err != nil, "(%v)", err)
	say(!wire.CheckCRC(b), "CRC wrong")
	return s
}

func segmentText(b []byte) string {
	var h ddp.Header
	body, err := h.Parse(b)
	if err != nil {
		return err.Error()
	}
	s := fmt.Sprintf("%v", h.Control.Opcode)
	switch {
	case h.Control.Opcode == wire.OpWriteRecord:
		var r wire.WriteRecord
		body, _ = r.Parse(body)
		s = fmt.Sprintf("record %d+%d at %d", r.MSN, r.MO, h.Tagged.TO)
	case h.Control.Tagged:
		s += fmt.Sprintf(" at %d", h.Tagged.TO)
	default:
		s += fmt.Sprintf(" %d.%d+%d", h.Untagged.QN, h.Untagged.MSN, h.Untagged.MO)
	}
	s += fmt.Sprintf(" %dB", len(body))
	if h.Control.Opcode == ddp.OpTerminate && len(body) >= ddp.TerminateLen {
		s += fmt.Sprintf(" %x", body[:ddp.TerminateLen])
	}
	if !h.Control.Last {
		s += " more"
	}
	return s
}

// defectCase is a conversation that goes one way with a sound NIC and another with
// one that has the defect.
type defectCase struct {
	talk             func(*rig)
	sound, defective string
}

func TestDefectsAreAsDocumented(t *testing.T) {
	defectCases := map[string]defectCase{}
	for _, part := range []map[string]defectCase{packetDefects, messageDefects, flowDefects} {
		maps.Copy(defectCases, part)
	}
	for _, info := range defects.All(new(Defects)) {
		c, ok := defectCases[info.Name]
		if !ok {
			t.Errorf("no conversation shows %s", info.Name)
			continue
		}
		if c.sound == c.defective {
			t.Errorf("%s: the conversation would not tell a defective NIC from a sound one", info.Name)
		}
		t.Run(info.Name, func(t *testing.T) {
			var q Defects
			c.play(t, q, c.sound)
			must.Do(t, defects.Set(&q, info.Name, true))
			c.play(t, q, c.defective)
		})
	}
	if len(defectCases) != len(defects.All(new(Defects))) {
		t.Errorf("%d conversations for %d defects", len(defectCases), len(defects.All(new(Defects))))
	}
}

func (c *defectCase) play(t *testing.T, q Defects, want string) {
	t.Helper()
	r := newRig(q)
	c.talk(r)
	if got := strings.Join(r.log, "; "); got != want {
		t.Errorf("with %q:\n\t%s\nwant:\n\t%s", defects.On(&q), strings.Join(r.log, "\n\t"), strings.ReplaceAll(want, "; ", "\n\t"))
	}
}

// damaged spoils the CRC, reversed turns it around, portsCovered has it cover the
// ports, trailed has octets follow what the packet is.
func damaged(d *link.Datagram) { d.Payload[len(d.Payload)-1] ^= 1 }

func portsCovered(d *link.Datagram) {
	n := len(d.Payload) - wire.CRCLen
	binary.LittleEndian.PutUint32(d.Payload[n:], portCRC(d, d.Payload[:n]))
}

func trailed(n int) func(*link.Datagram) {
	return func(d *link.Datagram) {
		d.Payload = wire.AppendCRC(append(d.Payload[:len(d.Payload)-wire.CRCLen], make([]byte, n)...), 0)
	}
}

func first(octet byte) func(*link.Datagram) {
	return func(d *link.Datagram) {
		d.Payload[0] = octet
		d.Payload = wire.AppendCRC(d.Payload[:len(d.Payload)-wire.CRCLen], 0)
	}
}

func class(c uint8) func(*link.Datagram) { return func(d *link.Datagram) { d.TClass = c } }
