package rocewire

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// sender is who sends datagrams to a QP.
type sender struct {
	addr    netip.Addr
	qpn, to uint32
}

// toUD reports whether the packet is a datagram for an ordinary QP.
func (p *packet) toUD() bool {
	return p.opcode().Transport() == wire.TransportUD && p.destQP() != gsiQPN
}

// newDatagram (UDPSNChecked) loses datagrams whose PSN is not beyond the last.
func newDatagram(e *Edge, p *packet) bool {
	h := p.header(wire.HasDETH)
	if !p.toUD() || h == nil {
		return true
	}
	from := sender{p.Src.Addr(), binary.BigEndian.Uint32(h[4:]) & 0xffffff, p.destQP()}
	last, known := e.dgram[from]
	if known && p.psn().Sub(last) <= 0 {
		return false
	}
	e.dgram[from] = p.psn()
	return true
}

// waitForReceive (UDWaitsForReceive) keeps a datagram for which there is no
// receive; deliverWaiting brings it when there is one.
func waitForReceive(e *Edge, p *packet) bool {
	const most = 16 // for each QP
	q, ok := e.qp(p.destQP())
	if !ok || !p.toUD() || q.Ready || !q.listens() {
		return true
	}
	n := 0
	for i := range e.wait {
		if e.wait[i].destQP() == q.Num {
			n++
		}
	}
	if n == most {
		return true
	}
	e.wait = append(e.wait, *p)
	return false
}

func (e *Edge) deliverWaiting(now mono.Time) {
	for i := 0; i < len(e.wait); {
		p := e.wait[i]
		if q, ok := e.qp(p.destQP()); ok && !q.Ready && q.listens() {
			i++
			continue
		}
		e.wait = slices.Delete(e.wait, i, i+1)
		p.now = now
		e.hand(&p)
	}
}

// zeroQKey (GSIQKeyZero) leaves out the Q_Key of management datagrams.
func zeroQKey(_ *Edge, p *packet) bool {
	if h := p.header(wire.HasDETH); h != nil && p.destQP() == gsiQPN {
		clear(h[:4])
		p.changed = true
	}
	return true
}

// ucAck is an opcode that the specification does not have: the acknowledgement of
// an unreliable connection.
var ucAck = wire.MakeOpcode(wire.TransportUC, wire.OpAcknowledge)

// onlyPositive (UCLikeRC) leaves it at positive acknowledgements of UC.
func onlyPositive(_ *Edge, p *packet) bool {
	if p.opcode() != ucAck {
		return true
	}
	body, _ := p.split()
	return len(body) >= wire.BTHLen+wire.AETHLen && wire.Syndrome(body[wire.BTHLen]).Kind() == wire.SyndromeAck
}

// handUC (UCLikeRC) gives a packet to the NIC and answers for it: a message of UC
// that is complete is acknowledged, one without a receive is refused.
func (e *Edge) handUC(p *packet) {
	t, q, ok := e.talkIn(p)
	all, noReceive := e.nic.Dropped()
	e.nic.Input(p.now, &p.Datagram)
	if !ok || p.opcode().Transport() != wire.TransportUC || !p.class().Has(wire.Request) {
		return
	}
	switch allNow, noReceiveNow := e.nic.Dropped(); {
	case noReceiveNow > noReceive:
		e.answerUC(p, &q, wire.RNRNak(1), t.msn)
	case allNow == all && p.class().Has(wire.End):
		t.msn = t.msn.Next()
		e.answerUC(p, &q, wire.Ack(wire.CreditUnlimited), t.msn)
	}
}

func (e *Edge) answerUC(p *packet, q *QP, s wire.Syndrome, msn wire.MSN) {
	a := e.made(p, q.Own, q.Peer, &wire.Packet{
		BTH: wire.BTH{
			Opcode: wire.MakeOpcode(wire.TransportRC, wire.OpAcknowledge), DestQP: q.PeerQPN, PSN: p.psn(),
			PKey: binary.BigEndian.Uint16(p.Payload[2:]),
		},
		AETH: wire.AETH{Syndrome: s, MSN: msn},
	})
	a.Payload[0] = byte(ucAck)
	a.changed = true
	e.queue = append(e.queue, a)
}
