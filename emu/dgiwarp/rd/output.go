package rd

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Packet is a packet to be sent.
type Packet struct {
	Dst     netip.AddrPort
	Payload []byte
	// Data is set if the packet carries a segment.
	Data bool
	// Peer is the receiver; nil for replies to unknown peers.
	Peer *Peer
}

// packetsPerTurn is the number of packets that a peer may send before the next peer. It is not
// small, because links coalesce packets to the same peer.
const packetsPerTurn = 32

// sendTurn lets the peers send in turns.
type sendTurn struct {
	active nic.FIFO[*Peer] // peers that may have packets to send
	peer   *Peer           // peer that sends now
	quota  int             // packets that it may still send
}

// reply is a challenge or refusal, sent without a flow.
type reply struct {
	dst    netip.AddrPort
	header wire.Header
	epoch  wire.Epoch
	cookie uint64
	reason wire.Reason
}

// Output appends the next packet to b: first challenges and refusals (l.replies), then up to
// packetsPerTurn packets to each active peer in turn. It reports false if there is none.
func (l *Layer) Output(now mono.Time, b []byte) (Packet, bool) {
	if r, ok := l.replies.Pop(); ok {
		return l.emitReply(&r, b), true
	}
	for t := &l.turn; ; t.peer = nil { // on to the next peer: this one is gone, or has no packet
		p := t.peer
		if p == nil {
			var ok bool
			if p, ok = t.active.Pop(); !ok {
				return Packet{}, false
			}
			p.set(flagQueued, false)
			t.peer, t.quota = p, packetsPerTurn
		}
		if p.Gone() {
			continue
		}
		out, ok := p.emit(now, b)
		if ok {
			if t.quota--; t.quota == 0 {
				t.peer = nil
				l.activate(p)
			}
		}
		l.timers.SetIfEarlier(&p.timer, p.deadline())
		if ok {
			return out, true
		}
	}
}

// emit appends the next packet to peer p to b: a segment, an acknowledgement, or both. It returns
// false if there is neither.
func (p *Peer) emit(now mono.Time, b []byte) (Packet, bool) {
	l := p.layer
	s := p.nextSegment(now)
	if s == nil && !p.has(flagAckDue) {
		return Packet{}, false
	}
	k := &l.scratch // the packet to send
	k.Header = wire.NewHeader(wire.KindRD, p.Key.RemoteQP, p.Key.LocalQP, p.peerQKey)
	from := len(b)
	if p.includesAck(s) {
		k.Flags |= p.fillAck(&k.Ack)
		p.ackSent(now, s == nil)
	}
	if s == nil {
		l.Count.SentAcks++
		return Packet{Dst: p.Key.RemoteAddr, Payload: wire.AppendCRC(k.AppendHeaders(b), from), Peer: p}, true
	}
	p.markSent(now, s)
	k.Data = wire.Data{Epoch: p.send.epoch, Seq: s.seq, Timestamp: s.sentAt, Proof: p.send.proof}
	k.Flags |= wire.FlagData
	if p.has(flagStarting) {
		k.Flags |= wire.FlagStart
		k.Data.Incarnation, k.Data.SourceKey = l.secrets.incarnation(p.Key.LocalQP), p.ownQKey
	}
	if s.tries > 1 || !p.canSendMore() { // a retransmission, or the last packet for now
		k.Flags |= wire.FlagAckNow
	}
	b = append(k.AppendHeaders(b), s.header...)
	for _, piece := range s.payload {
		b = append(b, piece...)
	}
	return Packet{Dst: p.Key.RemoteAddr, Payload: wire.AppendCRC(b, from), Data: true, Peer: p}, true
}

// includesAck reports whether the packet of segment s includes an acknowledgement: if one is
// pending and fits. A packet without a segment, s nil, always includes one.
func (p *Peer) includesAck(s *segment) bool {
	if s == nil {
		return true
	}
	if !p.has(flagAckDue) && p.recv.unacked == 0 {
		return false
	}
	return wire.RDOverhead+wire.AckLen+wire.SackWordLen*p.recv.sackWords()+int(s.length) <= p.layer.cfg.MaxPacket
}

// emitReply appends a challenge or a refusal to b.
func (l *Layer) emitReply(r *reply, b []byte) Packet {
	k := &l.scratch // the packet to send
	k.Header = r.header
	if r.header.Kind == wire.KindChallenge {
		l.Count.SentChallenges++
		k.Challenge = wire.Challenge{Epoch: r.epoch, Incarnation: l.secrets.incarnation(r.header.SrcQP), Cookie: r.cookie}
	} else {
		l.Count.SentRefusals++
		k.Refusal = wire.Refusal{Epoch: r.epoch, Reason: r.reason}
	}
	from := len(b)
	return Packet{Dst: r.dst, Payload: wire.AppendCRC(k.AppendHeaders(b), from)}
}

// reply queues r as the answer to a packet from src with the header h. Its kind is Challenge (the
// source must prove its address first) or Refusal (for r.reason). The answer has the received
// Q_Key. It is dropped if too many are queued.
func (l *Layer) reply(src netip.AddrPort, h *wire.Header, r reply, kind wire.Kind) {
	if l.replies.Len() >= l.cfg.Limits.Replies {
		l.Count.DropReply++
		return
	}
	r.dst, r.header = src, wire.NewHeader(kind, h.SrcQP, h.DstQP, h.Key)
	l.replies.Push(r)
}

// Refuse sends a refusal for a data packet to a queue pair that cannot receive it. Packets
// without data are not answered, to avoid loops of refusals.
func (l *Layer) Refuse(src netip.AddrPort, k *wire.Packet, why wire.Reason) {
	if k.Kind == wire.KindRD && k.Flags.Has(wire.FlagData) {
		l.reply(src, &k.Header, reply{epoch: k.Data.Epoch, reason: why}, wire.KindRefusal)
	}
}
