package rocewire

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// rig is a sound NIC that the tests play themselves, with an Edge around it. What
// comes through the Edge is written down.
type rig struct {
	t       testing.TB
	edge    *Edge
	qps     []QP
	gids    []verbs.GIDEntry
	ready   []link.Datagram // what the NIC has to send
	refuse  bool            // the NIC has no receive
	dropped uint64
	log     []string
}

var (
	ownAddr, secondAddr, v1Addr = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	peerAddr                    = netip.MustParseAddr("10.0.0.9")
)

// The NIC's queue pairs and those of its peer.
const (
	rcQP, ucQP, udQP, xrcQP         = 0x11, 0x12, 0x13, 0x14
	peerRC, peerUC, peerUD, peerXRC = 0x21, 0x22, 0x23, 0x24
	expected                        = 100
	mtu                             = 256
)

func newRig(t testing.TB, q Defects) *rig {
	r := &rig{t: t, gids: engine.RoCEv2GIDs(ownAddr, secondAddr, v1Addr)}
	r.gids[2].Type = verbs.GIDTypeRoCEv1
	connected := QP{
		State: verbs.QPStateRTS, Own: ownAddr, Peer: peerAddr, MTU: mtu,
		Access: verbs.AccessRemoteRead, Expected: expected, Ready: true,
	}
	for _, c := range []struct {
		num, peer uint32
		service   wire.Transport
	}{{rcQP, peerRC, wire.TransportRC}, {ucQP, peerUC, wire.TransportUC}, {xrcQP, peerXRC, wire.TransportXRC}} {
		q := connected
		q.Num, q.PeerQPN, q.Service = c.num, c.peer, c.service
		r.qps = append(r.qps, q)
	}
	r.qps = append(r.qps, QP{Num: udQP, Service: wire.TransportUD, State: verbs.QPStateRTS, Ready: true})
	r.edge = New(q, r, true)
	return r
}

func (r *rig) qp(num uint32) *QP {
	i := slices.IndexFunc(r.qps, func(q QP) bool { return q.Num == num })
	return &r.qps[i]
}

// Input notes what the NIC gets. It counts what it would drop for its ICRC or for
// want of a receive.
func (r *rig) Input(_ mono.Time, d *link.Datagram) {
	text := r.render(d)
	if r.refuse {
		r.dropped++
	}
	r.log = append(r.log, "got "+text)
}

// Output sends what the test had the NIC make.
func (r *rig) Output(_ mono.Time, ds []link.Datagram) int {
	n := copy(ds, r.ready)
	r.ready = r.ready[n:]
	return n
}

func (r *rig) QPs() []QP                        { return r.qps }
func (r *rig) GIDs() []verbs.GIDEntry           { return r.gids }
func (r *rig) Dropped() (all, noReceive uint64) { return r.dropped, r.dropped }

// edit changes a packet before its ICRC is made.
type edit func(*link.Datagram, *wire.Packet)

func (r *rig) make(from, to netip.Addr, op wire.Opcode, qpn uint32, psn wire.PSN, edits []edit) link.Datagram {
	p := wire.Packet{
		BTH:  wire.BTH{Opcode: op, PKey: wire.DefaultPKey, DestQP: qpn, PSN: psn},
		DETH: wire.DETH{QKey: 0x1111, SrcQP: peerUD}, AETH: wire.AETH{Syndrome: wire.Ack(3), MSN: 7},
	}
	d := link.Datagram{Src: netip.AddrPortFrom(from, 0xc123), Dst: netip.AddrPortFrom(to, wire.Port), HopLimit: 64}
	for _, e := range edits {
		e(&d, &p)
	}
	d.Payload = p.Append(nil)
	icrc := wire.NewICRC(d.Src, d.Dst)
	icrc.Seal(uint16(d.IPID), d.Payload)
	return d
}

// come builds a packet of the peer's, for the NIC's QP of its service.
func (r *rig) come(op wire.Opcode, psn wire.PSN, edits ...edit) link.Datagram {
	to := map[wire.Transport]uint32{wire.TransportRC: rcQP, wire.TransportUC: ucQP, wire.TransportUD: udQP, wire.TransportXRC: xrcQP, wire.TransportCNP: rcQP}
	return r.make(peerAddr, ownAddr, op, to[op.Transport()], psn, edits)
}

// in has such a packet arrive.
func (r *rig) in(op wire.Opcode, psn wire.PSN, edits ...edit) { r.arrive(r.come(op, psn, edits...)) }

func (r *rig) arrive(d link.Datagram) { r.edge.Input(0, &d) }

// out has the NIC send a packet.
func (r *rig) out(op wire.Opcode, psn wire.PSN, edits ...edit) {
	to := map[wire.Transport]uint32{wire.TransportRC: peerRC, wire.TransportUC: peerUC, wire.TransportUD: peerUD, wire.TransportXRC: peerXRC, wire.TransportCNP: peerRC}
	r.ready = append(r.ready, r.make(ownAddr, peerAddr, op, to[op.Transport()], psn, edits))
}

// hear notes what leaves.
func (r *rig) hear() { r.hearAt(0) }

// hearLate notes what leaves at once, and what when the edge is due.
func (r *rig) hearLate() {
	r.hear()
	r.note("now")
	if due := r.edge.Deadline(); due != mono.Never {
		r.hearAt(due)
	}
}

func (r *rig) hearAt(now mono.Time) {
	ds := make([]link.Datagram, 4)
	for n := r.edge.Output(now, ds); n > 0; n = r.edge.Output(now, ds) {
		for i := range ds[:n] {
			r.log = append(r.log, "sent "+r.render(&ds[i]))
		}
	}
}

func (r *rig) note(format string, args ...any) { r.log = append(r.log, fmt.Sprintf(format, args...)) }

var short = strings.NewReplacer("RC ", "", "ACKNOWLEDGE", "ACK", "READ_RESPONSE", "RR", "READ_REQUEST", "READ", "COMPARE_SWAP", "CAS")

// render prints what a packet says, as far as it is not as usual.
func (r *rig) render(d *link.Datagram) string {
	body, icrc := (&packet{Datagram: *d}).split()
	var p wire.Packet
	err := p.Parse(d.Payload)
	s := fmt.Sprintf("%s %d", short.Replace(p.BTH.Opcode.String()), p.BTH.PSN)
	say := func(on bool, format string, args ...any) {
		if on {
			s += fmt.Sprintf(" "+format, args...)
		}
	}
	info, _ := p.BTH.Opcode.Info()
	say(p.BTH.Solicited, "SE")
	say(p.BTH.MigReq, "M")
	say(p.BTH.AckReq, "AckReq")
	say(p.BTH.BECN, "BECN")
	say(p.BTH.Reserved6|p.BTH.Reserved7 != 0, "reserved %#x %#x", p.BTH.Reserved6, p.BTH.Reserved7)
	say(p.BTH.TVer != 0, "version %d", p.BTH.TVer)
	say(p.BTH.PKey != wire.DefaultPKey, "P_Key %#x", p.BTH.PKey)
	say(p.BTH.DestQP>>4 != 1 && p.BTH.DestQP>>4 != 2, "to QP %d", p.BTH.DestQP)
	say(info.Headers.Has(wire.HasAETH), "%#02x msn %d", uint8(p.AETH.Syndrome), p.AETH.MSN)
	say(p.BTH.Opcode == ucAck, "AETH %x", d.Payload[wire.BTHLen:][:wire.AETHLen])
	say(info.Headers.Has(wire.HasRETH), "%#x+%d", p.RETH.VA, p.RETH.DMALen)
	say(info.Headers.Has(wire.HasXRCETH), "SRQ %d", p.XRCETH.SRQN)
	say(info.Headers.Has(wire.HasDETH) && p.DETH.QKey != 0x1111, "Q_Key %#x", p.DETH.QKey)
	say(info.Headers.Has(wire.HasImm), "imm %08x", uint32(p.Imm))
	say(info.Headers.Has(wire.HasAtomicAckETH), "original %x", p.AtomicAckETH.Original)
	say(len(p.Payload) > 0, "%dB", len(p.Payload))
	say(p.BTH.PadCount > 0, "pad %x", body[len(body)-int(p.BTH.PadCount):])
	say(d.TClass != 0, "class %#x", d.TClass)
	say(d.Src.Port() != 0xc123, "from port %#x", d.Src.Port())
	say(d.Src.Addr() != ownAddr && d.Src.Addr() != peerAddr, "from %v", d.Src.Addr())
	say(d.Dst.Addr() != ownAddr && d.Dst.Addr() != peerAddr, "to %v", d.Dst.Addr())
	say(d.Dst.Port() != wire.Port, "to port %d", d.Dst.Port())
	say(err != nil && info.HeaderLen > 0, "(%v)", err)
	say(icrc != icrcOf(d, body, false, 0), "ICRC wrong")
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
	for _, part := range []map[string]defectCase{headerDefects, ackDefects, answerDefects, requestDefects, rxeDefects} {
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
	r := newRig(t, q)
	c.talk(r)
	if got := strings.Join(r.log, "; "); got != want {
		t.Errorf("with %q:\n\t%s\nwant:\n\t%s", defects.On(&q), strings.Join(r.log, "\n\t"), strings.ReplaceAll(want, "; ", "\n\t"))
	}
}

// Opcodes, by short names.
const (
	rcSend, rcWrite, rcRead, rcAck = wire.Opcode(wire.OpSendOnly), wire.Opcode(wire.OpWriteOnly), wire.Opcode(wire.OpReadRequest), wire.Opcode(wire.OpAcknowledge)
	rcFirst, rcMiddle, rcLast      = wire.Opcode(wire.OpReadResponseFirst), wire.Opcode(wire.OpReadResponseMiddle), wire.Opcode(wire.OpReadResponseLast)
	ucSend                         = wire.Opcode(wire.TransportUC) | wire.Opcode(wire.OpSendOnly)
	udSend                         = wire.Opcode(wire.TransportUD) | wire.Opcode(wire.OpSendOnly)
	xrcSend                        = wire.Opcode(wire.TransportXRC) | wire.Opcode(wire.OpSendOnly)
	xrcAck                         = wire.Opcode(wire.TransportXRC) | wire.Opcode(wire.OpAcknowledge)
)

func bytesOf(n int) edit {
	return func(_ *link.Datagram, p *wire.Packet) { p.Payload = make([]byte, n) }
}
func asking(_ *link.Datagram, p *wire.Packet) { p.BTH.AckReq = true }
func says(s wire.Syndrome) edit {
	return func(_ *link.Datagram, p *wire.Packet) { p.AETH.Syndrome = s }
}

func about(va uint64, n uint32) edit {
	return func(_ *link.Datagram, p *wire.Packet) { p.RETH = wire.RETH{VA: va, RKey: 5, DMALen: n} }
}

func toward(qpn uint32) edit { return func(_ *link.Datagram, p *wire.Packet) { p.BTH.DestQP = qpn } }

func overIPv6(d *link.Datagram, _ *wire.Packet) {
	d.Src, d.Dst = netip.MustParseAddrPort("[fd00::9]:49443"), netip.MustParseAddrPort("[fd00::1]:4791")
}
func bth(f func(*wire.BTH)) edit { return func(_ *link.Datagram, p *wire.Packet) { f(&p.BTH) } }

func noChecksum(d *link.Datagram, _ *wire.Packet) { d.Variants |= link.NoChecksum }
