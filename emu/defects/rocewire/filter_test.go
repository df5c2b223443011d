package rocewire

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// rig is a Filter with a NIC that the test controls. Its log has the packets that the NIC and the
// link get.
type rig struct {
	filter *Filter
	qp     QP
	ready  []link.Datagram // packets of the NIC that are to be sent
	log    []string
}

var ownAddr, peerAddr = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.9")

const ownQP, peerQP, nextPSN = 0x11, 0x21, 100

func newRig(q Defects) *rig {
	r := &rig{qp: QP{Num: ownQP, Service: wire.TransportRC, Peer: peerAddr, PeerQPN: peerQP, NextPSN: nextPSN}}
	r.filter = New(q, r, true)
	return r
}

// Input implements NIC.
func (r *rig) Input(_ mono.Time, d *link.Datagram) { r.log = append(r.log, "got "+describe(d)) }

// Output implements NIC.
func (r *rig) Output(_ mono.Time, ds []link.Datagram) int {
	n := copy(ds, r.ready)
	r.ready = r.ready[n:]
	return n
}

// QPs implements NIC.
func (r *rig) QPs() []QP { return []QP{r.qp} }

// edit changes a packet before its ICRC is computed.
type edit func(*link.Datagram, *wire.Packet)

// build returns a packet.
func build(from, to netip.Addr, op wire.Opcode, qpn uint32, psn wire.PSN, edits []edit) link.Datagram {
	p := wire.Packet{
		BTH:  wire.BTH{Opcode: op, PKey: wire.DefaultPKey, DestQP: qpn, PSN: psn},
		AETH: wire.AETH{Syndrome: wire.Ack(3), MSN: 7},
	}
	d := link.Datagram{Src: netip.AddrPortFrom(from, 0xc123), Dst: netip.AddrPortFrom(to, wire.Port), HopLimit: 7}
	for _, e := range edits {
		e(&d, &p)
	}
	d.Payload = p.Append(nil)
	wire.NewICRC(d.Src, d.Dst).Seal(uint16(d.IPID), d.Payload)
	return d
}

// receive passes a packet of the peer to the filter.
func (r *rig) receive(op wire.Opcode, psn wire.PSN, edits ...edit) {
	d := build(peerAddr, ownAddr, op, ownQP, psn, edits)
	r.filter.Input(0, &d)
}

// send sends a packet of the NIC at time 0.
func (r *rig) send(op wire.Opcode, psn wire.PSN, edits ...edit) {
	r.ready = append(r.ready, build(ownAddr, peerAddr, op, peerQP, psn, edits))
	r.output(0)
}

// output logs the packets that leave the filter.
func (r *rig) output(now mono.Time) {
	ds := make([]link.Datagram, 4)
	for n := r.filter.Output(now, ds); n > 0; n = r.filter.Output(now, ds) {
		for i := range ds[:n] {
			r.log = append(r.log, "sent "+describe(&ds[i]))
		}
	}
}

// describe returns opcode and PSN of a packet, and fields that differ from their defaults.
func describe(d *link.Datagram) string {
	var p wire.Packet
	_ = p.Parse(d.Payload) // fails for reserved opcodes and invalid packets
	s := fmt.Sprintf("%s %d", strings.TrimPrefix(p.BTH.Opcode.String(), "RC "), p.BTH.PSN)
	add := func(on bool, format string, args ...any) {
		if on {
			s += fmt.Sprintf(" "+format, args...)
		}
	}
	info, _ := p.BTH.Opcode.Info()
	add(p.BTH.MigReq, "M")
	add(p.BTH.AckReq, "AckReq")
	add(info.Headers.Has(wire.HasAETH), "%#02x", uint8(p.AETH.Syndrome))
	add(info.Headers.Has(wire.HasAtomicETH), "compare %#x", p.AtomicETH.Compare)
	add(len(p.Payload) > 0, "%dB pad %d", len(p.Payload), p.BTH.PadCount)
	add(d.TClass != 0, "class %#x", d.TClass)
	add(d.HopLimit != 7, "hop limit %d", d.HopLimit)
	add(!wire.NewICRC(d.Src, d.Dst).Check(uint16(d.IPID), d.Payload), "ICRC wrong")
	return s
}

func TestDefectsAreAsDocumented(t *testing.T) {
	all := defects.All(new(Defects))
	if len(exchanges) != len(all) {
		t.Errorf("%d exchanges for %d defects", len(exchanges), len(all))
	}
	for _, info := range all {
		c := exchanges[info.Name]
		t.Run(info.Name, func(t *testing.T) {
			var q Defects
			expect := func(want string) {
				r := newRig(q)
				c.exchange(r)
				if got := strings.Join(r.log, "; "); got != want {
					t.Errorf("with %+v:\n\t%s\nwant:\n\t%s", q, got, want)
				}
			}
			expect(c.correct)
			must.Do(t, defects.Set(&q, info.Name, true))
			expect(c.defective)
			if c.correct == c.defective {
				t.Error("the exchange does not show the defect")
			}
		})
	}
}

// Opcodes of RC.
const (
	rcSend, rcAck, rcRead = wire.Opcode(wire.OpSendOnly), wire.Opcode(wire.OpAcknowledge), wire.Opcode(wire.OpReadRequest)
	rcFlush, rcFetchAdd   = wire.Opcode(wire.OpFlush), wire.Opcode(wire.OpFetchAdd)
	rcReserved            = wire.Opcode(0x1f)
)

func syndrome(s wire.Syndrome) edit {
	return func(_ *link.Datagram, p *wire.Packet) { p.AETH.Syndrome = s }
}

func class(c uint8) edit                      { return func(d *link.Datagram, _ *wire.Packet) { d.TClass = c } }
func migReq(_ *link.Datagram, p *wire.Packet) { p.BTH.MigReq = true }

var (
	sequenceNAK = syndrome(wire.Nak(wire.NakPSNSequence))
	invalidNAK  = syndrome(wire.Nak(wire.NakInvalidRequest))
)

// exchanges has packets that show each defect, and the log without and with it.
var exchanges = map[string]struct {
	exchange           func(*rig)
	correct, defective string
}{
	"DFUnchecked": {
		exchange: func(r *rig) {
			for _, id := range []uint32{5, link.IPIDUnknown} {
				d := build(peerAddr, ownAddr, rcSend, ownQP, 100, []edit{func(d *link.Datagram, _ *wire.Packet) { d.IPID = 5 }})
				clearDF(&d)
				d.IPID = id
				r.filter.Input(0, &d)
				r.log = append(r.log, fmt.Sprintf("variants %d", d.Variants))
			}
			r.receive(rcSend, 101)
		},
		correct:   "got SEND_ONLY 100 ICRC wrong; variants 2; got SEND_ONLY 100 ICRC wrong; variants 2; got SEND_ONLY 101",
		defective: "got SEND_ONLY 100; variants 2; got SEND_ONLY 100; variants 2; got SEND_ONLY 101",
	},
	"HugeLengthIsAccess": {
		exchange: func(r *rig) {
			for _, n := range []uint32{1 << 31, 1<<31 + 1} {
				r.receive(rcRead, 100, func(_ *link.Datagram, p *wire.Packet) { p.RETH.DMALen = n })
				r.send(rcAck, 99, invalidNAK)
				r.send(rcAck, 100, invalidNAK)
			}
		},
		correct:   "got READ_REQUEST 100; sent ACKNOWLEDGE 99 0x61; sent ACKNOWLEDGE 100 0x61; got READ_REQUEST 100; sent ACKNOWLEDGE 99 0x61; sent ACKNOWLEDGE 100 0x61",
		defective: "got READ_REQUEST 100; sent ACKNOWLEDGE 99 0x61; sent ACKNOWLEDGE 100 0x61; got READ_REQUEST 100; sent ACKNOWLEDGE 99 0x61; sent ACKNOWLEDGE 100 0x62",
	},
	"MigReqZero": {
		exchange: func(r *rig) { r.send(rcSend, 7, migReq) },
		correct:  "sent SEND_ONLY 7 M", defective: "sent SEND_ONLY 7",
	},
	"MigrationIgnored": {
		exchange: func(r *rig) {
			r.receive(rcSend, 100, migReq)
			r.qp.Armed = true
			r.receive(rcSend, 101, migReq)
		},
		correct: "got SEND_ONLY 100 M; got SEND_ONLY 101 M", defective: "got SEND_ONLY 100 M; got SEND_ONLY 101",
	},
	"NoCongestion": {
		exchange: func(r *rig) {
			r.receive(rcSend, 100, class(0x68|link.CE))
			r.receive(wire.CNP, 0)
			r.send(rcSend, 7, class(0x68|link.ECT0))
		},
		correct:   "got SEND_ONLY 100 class 0x6b; got CNP 0; sent SEND_ONLY 7 class 0x6a",
		defective: "got SEND_ONLY 100 class 0x68; sent SEND_ONLY 7 class 0x68",
	},
	"ECNFromTClass": {
		exchange: func(r *rig) {
			r.qp.TClass = 0x69
			r.send(rcSend, 7, class(0x68|link.ECT0))
			r.send(wire.MakeOpcode(wire.TransportUD, wire.OpSendOnly), 8, class(link.ECT0))
		},
		correct:   "sent SEND_ONLY 7 class 0x6a; sent UD SEND_ONLY 8 class 0x2",
		defective: "sent SEND_ONLY 7 class 0x69; sent UD SEND_ONLY 8 class 0x2",
	},
	"FetchAddLeaks": {
		exchange: func(r *rig) { r.send(rcFetchAdd, 7) },
		correct:  "sent FETCH_ADD 7 compare 0x0", defective: "sent FETCH_ADD 7 compare 0x5b87807f7",
	},
	"FlushICRCDoubled": {
		exchange: func(r *rig) {
			r.receive(rcFlush, 100)
			doubled := packet{Datagram: build(peerAddr, ownAddr, rcFlush, ownQP, 101, nil)}
			body, right := doubled.splitICRC()
			doubled.replaceICRC(doubledICRC(right, body))
			r.filter.Input(0, &doubled.Datagram)
			r.receive(rcSend, 102)
			r.send(rcFlush, 7)
			r.send(rcSend, 8)
		},
		correct:   "got FLUSH 100; got FLUSH 101 ICRC wrong; got SEND_ONLY 102; sent FLUSH 7; sent SEND_ONLY 8",
		defective: "got FLUSH 100 ICRC wrong; got FLUSH 101; got SEND_ONLY 102; sent FLUSH 7 ICRC wrong; sent SEND_ONLY 8",
	},
	"GSIAckReq": {
		exchange: func(r *rig) {
			r.send(rcSend, 7, func(_ *link.Datagram, p *wire.Packet) { p.BTH.DestQP = 1 })
			r.send(rcSend, 8)
		},
		correct: "sent SEND_ONLY 7; sent SEND_ONLY 8", defective: "sent SEND_ONLY 7 AckReq; sent SEND_ONLY 8",
	},
	"ReservedOpSilent": {
		exchange: func(r *rig) {
			r.receive(rcReserved, nextPSN)
			r.receive(rcReserved, nextPSN+1)
		},
		correct: "got 0x1f 100; got 0x1f 101", defective: "got 0x1f 101",
	},
	"RaggedAccepted": {
		exchange: func(r *rig) {
			p := packet{Datagram: build(peerAddr, ownAddr, rcSend, ownQP, 100, nil)}
			p.Payload = append(p.Payload[:wire.BTHLen], make([]byte, 5+wire.ICRCLen)...)
			r.filter.setICRC(&p)
			r.filter.Input(0, &p.Datagram)
		},
		correct: "got SEND_ONLY 100 5B pad 0", defective: "got SEND_ONLY 100 5B pad 3",
	},
	"FixedHopLimit": {
		exchange: func(r *rig) { r.send(rcSend, 7) },
		correct:  "sent SEND_ONLY 7", defective: "sent SEND_ONLY 7 hop limit 64",
	},
	"NoCreditReporting": {
		exchange: func(r *rig) {
			r.send(rcAck, 7)
			r.send(rcAck, 9, sequenceNAK)
		},
		correct: "sent ACKNOWLEDGE 7 0x03; sent ACKNOWLEDGE 9 0x60", defective: "sent ACKNOWLEDGE 7 0x1f; sent ACKNOWLEDGE 9 0x60",
	},
	"NoCreditHeeding": {
		exchange: func(r *rig) { r.receive(rcAck, 7) },
		correct:  "got ACKNOWLEDGE 7 0x03", defective: "got ACKNOWLEDGE 7 0x1f",
	},
	"NAKLate": {
		exchange: func(r *rig) {
			r.send(rcAck, 7, sequenceNAK)
			r.send(rcAck, 8)
			r.output(mono.Time(nakDelay) - 1)
			r.output(r.filter.Deadline())
		},
		correct: "sent ACKNOWLEDGE 7 0x60; sent ACKNOWLEDGE 8 0x03", defective: "sent ACKNOWLEDGE 8 0x03; sent ACKNOWLEDGE 7 0x60",
	},
	"AckPSNOff": {
		exchange: func(r *rig) {
			r.send(rcAck, 7)
			r.send(rcSend, 8)
		},
		correct: "sent ACKNOWLEDGE 7 0x03; sent SEND_ONLY 8", defective: "sent ACKNOWLEDGE 8 0x03; sent SEND_ONLY 8",
	},
	"NAKWaitsForTimer": {
		exchange: func(r *rig) {
			r.receive(rcAck, 9, sequenceNAK)
			r.receive(rcAck, 9, invalidNAK)
		},
		correct: "got ACKNOWLEDGE 9 0x60; got ACKNOWLEDGE 9 0x61", defective: "got ACKNOWLEDGE 8 0x1f; got ACKNOWLEDGE 9 0x61",
	},
	"ReservedBitsChecked": {
		exchange: func(r *rig) {
			r.receive(rcSend, 100)
			r.receive(rcSend, 101, func(_ *link.Datagram, p *wire.Packet) { p.BTH.Reserved6 = 1 })
			r.receive(rcSend, 102, func(_ *link.Datagram, p *wire.Packet) { p.BTH.Reserved7 = 1 })
		},
		correct: "got SEND_ONLY 100; got SEND_ONLY 101; got SEND_ONLY 102", defective: "got SEND_ONLY 100",
	},
}
