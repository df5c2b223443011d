package rocewire

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// peer names a connection by its far end, which packets of both directions tell.
type peer struct {
	addr netip.Addr
	qpn  uint32
}

// talk is what an Edge remembers of a connection.
type talk struct {
	readPSN wire.PSN // ReadPSNStuck: of the request that is being answered
	aeth    []byte   // AETHInMiddle: of the FIRST response
	carry   []byte   // AETHInMiddle: bytes that MIDDLE responses had no room for

	writes  []write // RETHPerPacket
	reads   []span  // ReadTakesOnePSN: ours
	asked   []read  // SubReadWhole: the peer's
	unasked []span  // ReadNeedsAckReq

	atomic *wire.PSN // ReplayKeepsOne: the last one's
	huge   *wire.PSN // HugeLengthIsAccess: where a length was
	barred *wire.PSN // AccessNAKsSwapped: where the QP lacked the right
	early  *wire.PSN // EarlyAckCounts

	msn wire.MSN // UCLikeRC
}

// span is a row of PSNs.
type span struct{ first, last wire.PSN }

func (s span) has(psn wire.PSN) bool { return psn.Sub(s.first) >= 0 && psn.Sub(s.last) <= 0 }

// count is how many PSNs there are.
func (s span) count() int32 { return s.last.Sub(s.first) + 1 }

// memory is how many requests of each kind are remembered.
const memory = 256

// remember adds to a list whose oldest entries are forgotten.
func remember[T any](list []T, v T) []T {
	if len(list) == memory {
		list = list[1:]
	}
	return append(list, v)
}

func (e *Edge) talk(who peer) *talk {
	if e.talks[who] == nil {
		e.talks[who] = new(talk)
	}
	return e.talks[who]
}

// talkOut is the connection that a packet leaves on.
func (e *Edge) talkOut(p *packet) *talk { return e.talk(peer{p.Dst.Addr(), p.destQP()}) }

// talkIn is the connection that a packet comes on, and its QP.
func (e *Edge) talkIn(p *packet) (*talk, QP, bool) {
	q, ok := e.qp(p.destQP())
	if !ok || !q.Peer.IsValid() {
		return nil, q, false
	}
	return e.talk(peer{q.Peer, q.PeerQPN}), q, true
}

// sender is the QP that a packet leaves from.
func (e *Edge) sentFrom(p *packet) (QP, bool) {
	for _, q := range e.nic.QPs() {
		if q.Peer == p.Dst.Addr() && q.PeerQPN == p.destQP() && q.Service == p.opcode().Transport() {
			return q, true
		}
	}
	return QP{}, false
}

// packets is how many packets carry n bytes to or from a QP.
func (q *QP) packets(n uint32) int32 {
	if n == 0 || q.MTU == 0 {
		return 1
	}
	return int32((uint64(n) + uint64(q.MTU) - 1) / uint64(q.MTU))
}

// made is a packet that nobody sent, between the ends of a QP's path.
func (e *Edge) made(by *packet, from, to netip.Addr, w *wire.Packet) packet {
	const anyPort = 0xc000
	w.BTH.MigReq = true
	p := packet{now: by.now, Datagram: link.Datagram{
		Src: netip.AddrPortFrom(from, anyPort), Dst: netip.AddrPortFrom(to, wire.Port),
		HopLimit: 64, IPID: link.IPIDUnknown, Payload: w.Append(nil),
	}}
	e.seal(&p)
	p.IPID = 0 // what it was sealed for
	return p
}

// connected reports whether a QP is in a state in which it hears its peer.
func (q *QP) listens() bool { return q.State >= verbs.QPStateRTR && q.State != verbs.QPStateErr }
