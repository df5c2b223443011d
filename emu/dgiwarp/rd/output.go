package rd

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Packet is one to be sent.
type Packet struct {
	Dst     netip.AddrPort
	Payload []byte
	// Data is set if it carries a segment.
	Data bool
	// Peer is whom it is for; nil if it answers one who is not known.
	Peer *Peer
}

// turn is how many packets one peer may send before the next has its turn. A
// link joins packets to one peer into larger units, so it is not small.
const turn = 32

// reply is a packet that answers one without there being a flow.
type reply struct {
	dst    netip.AddrPort
	packet wire.Header
	epoch  wire.Epoch
	cookie uint64
	reason wire.Reason
}

// Output appends the next packet that is ready to leave to b, or reports that
// there is none.
func (l *Layer) Output(now mono.Time, b []byte) (Packet, bool) {
	if r, ok := l.replies.Pop(); ok {
		return l.emitReply(&r, b), true
	}
	for {
		p := l.current
		if p == nil {
			var ok bool
			if p, ok = l.active.Pop(); !ok {
				return Packet{}, false
			}
			p.set(flagQueued, false)
			l.current, l.quota = p, turn
		}
		if !p.Gone() {
			if out, ok := p.emit(now, b); ok {
				if l.quota--; l.quota == 0 {
					l.current = nil
					l.activate(p)
				}
				l.timers.sooner(p)
				return out, true
			}
			l.timers.sooner(p)
		}
		l.current = nil
	}
}

// emit builds the peer's next packet: a segment, if one may leave, with an
// acknowledgement if there is one to give and room for it, or that alone.
func (p *Peer) emit(now mono.Time, b []byte) (Packet, bool) {
	l := p.layer
	s := p.pick(now)
	if s == nil && !p.has(flagAckDue) {
		return Packet{}, false
	}
	k := &l.scratch
	k.Header = wire.NewHeader(wire.KindRD, p.Key.RemoteQP, p.Key.Local, p.qkey)
	from := len(b)
	if p.acknowledges(s) {
		p.fillAck(&k.Ack)
		k.Flags |= p.ackFlags()
		p.acknowledged(now, s == nil)
	}
	if s == nil {
		l.Count.SentAcks++
		return Packet{Dst: p.Key.Remote, Payload: wire.AppendCRC(k.AppendHeaders(b), from), Peer: p}, true
	}
	p.depart(now, s)
	k.Data = wire.Data{Epoch: p.epoch, Seq: s.seq, Timestamp: s.sentAt, Proof: p.proof}
	k.Flags |= wire.FlagData
	if p.has(flagStarting) {
		k.Flags |= wire.FlagStart
		k.Data.Incarnation, k.Data.SourceKey = l.incarnation(p.Key.Local), p.ownKey
	}
	if s.tries > 1 || !p.more() {
		k.Flags |= wire.FlagAckNow
	}
	b = append(k.AppendHeaders(b), s.header...)
	for _, piece := range s.payload {
		b = append(b, piece...)
	}
	return Packet{Dst: p.Key.Remote, Payload: wire.AppendCRC(b, from), Data: true, Peer: p}, true
}

// acknowledges reports whether an acknowledgement rides with s, or goes alone if
// that is nil: none does for which the packet has no room.
func (p *Peer) acknowledges(s *segment) bool {
	if s == nil {
		return true
	}
	if !p.has(flagAckDue) && p.fresh == 0 {
		return false
	}
	return wire.RDOverhead+p.ackLen()+int(s.length) <= p.layer.cfg.MaxPacket
}

// emitReply builds a challenge or a refusal.
func (l *Layer) emitReply(r *reply, b []byte) Packet {
	k := &l.scratch
	k.Header = r.packet
	if r.packet.Kind == wire.KindChallenge {
		l.Count.SentChallenges++
		k.Challenge = wire.Challenge{Epoch: r.epoch, Incarnation: l.incarnation(r.packet.SrcQP), Cookie: r.cookie}
	} else {
		l.Count.SentRefusals++
		k.Refusal = wire.Refusal{Epoch: r.epoch, Reason: r.reason}
	}
	from := len(b)
	return Packet{Dst: r.dst, Payload: wire.AppendCRC(k.AppendHeaders(b), from)}
}

// reply queues an answer to a packet from src, which goes back with the key that
// came: the answer is known by the epoch in it.
func (l *Layer) reply(src netip.AddrPort, h *wire.Header, r reply, kind wire.Kind) {
	if l.replies.Len() >= l.cfg.Limits.Replies {
		l.Count.DropReply++
		return
	}
	r.dst, r.packet = src, wire.NewHeader(kind, h.SrcQP, h.DstQP, h.Key)
	l.replies.Push(r)
}

// Refuse answers a packet with data for a queue pair that takes none. What
// carries no data is not answered: two who refuse each other would not end.
func (l *Layer) Refuse(src netip.AddrPort, k *wire.Packet, why wire.Reason) {
	if k.Kind == wire.KindRD && k.Flags.Has(wire.FlagData) {
		l.reply(src, &k.Header, reply{epoch: k.Data.Epoch, reason: why}, wire.KindRefusal)
	}
}
