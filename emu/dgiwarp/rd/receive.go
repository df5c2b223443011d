package rd

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// arrival is the next segment of a flow, still in the received packet.
type arrival struct {
	peer    *Peer
	segment []byte
	flags   wire.Flags
}

// Input handles an intact packet of kind RD, Challenge or Refusal for a local RD queue pair.
// marked is set if the packet has a congestion mark.
//
// Next may return the segment in the packet without a copy: the layer's owner must call Next until
// that reports false, before the next Input, or the segment is dropped.
func (l *Layer) Input(now mono.Time, src netip.AddrPort, k *wire.Packet, marked bool) {
	if l.arrival.peer != nil {
		l.Count.DropUnclaimed++
		l.arrival = arrival{}
	}
	key := Key{RemoteAddr: src, LocalQP: k.DstQP, RemoteQP: k.SrcQP}
	p := l.find(&key)
	switch k.Kind {
	case wire.KindChallenge:
		if p == nil {
			l.Count.DropChallenge++
			return
		}
		p.receiveChallenge(now, &k.Challenge)
		return
	case wire.KindRefusal:
		if p == nil {
			l.Count.DropRefusal++
			return
		}
		p.receiveRefusal(&k.Refusal)
		return
	}
	if k.Flags.Has(wire.FlagAck) {
		if p == nil {
			l.Count.DropAck++
		} else {
			p.receiveAck(now, &k.Ack, k.Flags)
		}
	}
	if !k.Flags.Has(wire.FlagData) {
		if !k.Flags.Has(wire.FlagAck) {
			l.Count.DropEmpty++
		}
		return
	}
	switch {
	case p == nil || !p.has(flagReceiving) || p.recv.epoch != k.Data.Epoch:
		if p = l.admit(now, p, key, k); p == nil {
			return
		}
	case p.has(flagRefused):
		l.Count.DropUnknown++
		l.Refuse(src, k, wire.ReasonUnknown)
		return
	}
	p.receiveData(now, k, marked)
	l.timers.SetIfEarlier(&p.timer, p.deadline())
}

// admit handles a data packet of an unknown flow. If the packet has the start flag and a proof of
// its source address, and there are not too many peers, admit starts the flow and returns the peer.
// If the peer has restarted, the flow to it fails. Otherwise admit sends a refusal or a challenge,
// and returns nil.
func (l *Layer) admit(now mono.Time, p *Peer, key Key, k *wire.Packet) *Peer {
	d := &k.Data
	if !k.Flags.Has(wire.FlagStart) {
		l.Count.DropUnknown++
		l.Refuse(key.RemoteAddr, k, wire.ReasonUnknown)
		return nil
	}
	slot := uint64(now) / uint64(l.cfg.Timing.CookieSlot)
	switch {
	case p != nil && !p.has(flagReceiving) && d.Proof != 0 && d.Proof == uint64(p.Epoch()):
		// The peer knows our epoch: it receives packets at its address.
	case d.Proof == l.secrets.cookie(&key, p, d.Epoch, slot), slot > 0 && d.Proof == l.secrets.cookie(&key, p, d.Epoch, slot-1):
		// The cookie is of this time slot or the one before.
	default:
		l.Count.DropUnproved++
		l.reply(key.RemoteAddr, &k.Header, reply{epoch: d.Epoch, cookie: l.secrets.cookie(&key, p, d.Epoch, slot)}, wire.KindChallenge)
		return nil
	}
	if p == nil {
		if p = l.add(now, key); p == nil {
			l.Refuse(key.RemoteAddr, k, wire.ReasonFull)
			return nil
		}
	}
	l.dropReceived(p)
	p.recv.epoch, p.recv.next, p.recv.unacked = d.Epoch, 0, 0
	p.setAckTimer(mono.Never)
	p.flags &^= flagAckDue | flagEcho | flagMarked | flagDuplicate | flagRefused
	restarted := p.incarnation != 0 && p.incarnation != d.Incarnation
	unproved := p.has(flagStarting) && !p.has(flagProved) // the old incarnation accepted nothing: the flow continues
	if restarted && p.has(flagSending) && !unproved {
		l.fail(p, ErrRestarted)
	}
	p.incarnation, p.peerQKey = d.Incarnation, d.SourceKey
	p.set(flagReceiving|flagBegins, true)
	l.queueEvent(p)
	return p
}

// receiveData offers the next segment to the layer's owner, stores a segment that arrives early,
// and drops a duplicate or a segment beyond the window. The timestamp to echo is that of the first
// packet since the last acknowledgement, or of a later packet out of order. marked says that the
// packet has a congestion mark, which the acknowledgement reports.
func (p *Peer) receiveData(now mono.Time, k *wire.Packet, marked bool) {
	l := p.layer
	p.lastReceived = now
	if marked {
		p.set(flagMarked, true)
	}
	ahead := k.Data.Seq.Sub(p.recv.next)
	switch {
	case ahead == 0 && !p.recv.nextStored():
		l.arrival = arrival{peer: p, segment: k.ULPDU, flags: k.Flags}
		if !p.has(flagEcho) {
			p.recv.echo = k.Data.Timestamp
			p.set(flagEcho, true)
		}
		return
	case ahead <= 0:
		l.Count.DropRepeated++
		p.set(flagDuplicate, true)
	case ahead >= wire.Window:
		l.Count.DropBeyond++
	default:
		p.storeSegment(k.Data.Seq, k.ULPDU)
	}
	// Something is out of order: the sender wants to know at once.
	p.recv.echo = k.Data.Timestamp
	p.set(flagEcho, true)
	p.ackNow()
}

// setAckTimer sets when the delayed acknowledgement is sent, mono.Never if there is none, and
// updates delayedAcks, the number of peers that have one.
func (p *Peer) setAckTimer(at mono.Time) {
	if p.recv.ackAt == mono.Never {
		p.layer.delayedAcks++
	}
	if p.recv.ackAt = at; at == mono.Never {
		p.layer.delayedAcks--
	}
}

// ackNow makes the next Output send an acknowledgement, alone or with a segment.
func (p *Peer) ackNow() {
	p.setAckTimer(mono.Never)
	p.set(flagAckDue, true)
	p.layer.activate(p)
}

// ackEvery is the maximum number of segments per acknowledgement.
const ackEvery = 32

// segmentAccepted advances the flow after the layer's owner has accepted a segment, and
// acknowledges it now or after a delay. flags are those of the segment's packet.
func (p *Peer) segmentAccepted(now mono.Time, flags wire.Flags) {
	l := p.layer
	l.Count.Delivered++
	p.recv.next++
	if p.recv.unacked < 255 { // saturates
		p.recv.unacked++
	}
	atOnce := flags.Has(wire.FlagAckNow) && !p.has(flagDelayAcks)
	switch {
	case p.has(flagAckDue): // an acknowledgement is due already
	case atOnce || p.recv.unacked >= ackEvery || p.recv.stored != nil:
		p.ackNow()
	default:
		p.setAckTimer(min(p.recv.ackAt, now.Add(l.cfg.Timing.AckDelay)))
	}
}

// sackWords returns the number of 32-bit words of the selective acknowledgement: a bit for each
// segment after the next expected one, up to the last stored one.
func (f *recvFlow) sackWords() int {
	if f.stored == nil {
		return 0
	}
	last := f.stored
	for last.next != nil {
		last = last.next
	}
	return int(last.seq.Sub(f.next)+31) / 32
}

// fillAck builds the acknowledgement of the peer's flow, and returns the flags of its packet.
func (p *Peer) fillAck(a *wire.Ack) wire.Flags {
	f := &p.recv
	*a = wire.Ack{Epoch: f.epoch, Next: f.next, Echo: f.echo, Window: wire.Window, Words: uint8(f.sackWords())}
	if p.has(flagBlocked) { // no receive is posted
		a.Window = 0
	}
	for s := f.stored; s != nil; s = s.next {
		if i := s.seq.Sub(f.next) - 1; i >= 0 { // -1: segment Next is stored, too, but not accepted
			a.Sack[i/32] |= 1 << (i % 32)
		}
	}
	flags := wire.FlagAck
	if p.has(flagMarked) {
		flags |= wire.FlagMarked
	}
	if p.has(flagDuplicate) {
		flags |= wire.FlagDuplicate
	}
	return flags
}

// ackSent resets the acknowledgement state after an acknowledgement was built. alone is set if its
// packet has no segment.
func (p *Peer) ackSent(now mono.Time, alone bool) {
	p.recv.unacked = 0
	p.setAckTimer(mono.Never)
	p.flags &^= flagAckDue | flagEcho | flagMarked | flagDuplicate
	if alone {
		p.recv.lastPureAck = now
	}
}
