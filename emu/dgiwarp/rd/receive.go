package rd

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// arrival is a segment that is next in its flow, while it is in the packet that
// brought it.
type arrival struct {
	peer    *Peer
	segment []byte
	flags   wire.Flags
}

// Input takes one packet of the kinds RD, Challenge and Refusal, which must be
// intact, and for a queue pair of this host that takes reliable datagrams. marked
// says that the network marked it for congestion.
//
// The segment in it may be what Next shows next, and is borrowed until then:
// call Next until it has no more before the next Input, or the segment counts as
// lost.
func (l *Layer) Input(now mono.Time, src netip.AddrPort, k *wire.Packet, marked bool) {
	if l.arrival.peer != nil {
		l.Count.DropUnclaimed++
		l.arrival = arrival{}
	}
	key := Key{Remote: src, Local: k.DstQP, RemoteQP: k.SrcQP}
	p := l.find(&key)
	switch k.Kind {
	case wire.KindChallenge:
		if p == nil {
			l.Count.DropChallenge++
			return
		}
		p.takeChallenge(now, &k.Challenge)
		return
	case wire.KindRefusal:
		if p == nil {
			l.Count.DropRefusal++
			return
		}
		p.takeRefusal(&k.Refusal)
		return
	}
	if k.Flags.Has(wire.FlagAck) {
		if p == nil {
			l.Count.DropAck++
		} else {
			p.takeAck(now, &k.Ack, k.Flags)
		}
	}
	if !k.Flags.Has(wire.FlagData) {
		if !k.Flags.Has(wire.FlagAck) {
			l.Count.DropEmpty++
		}
		return
	}
	switch {
	case p == nil || !p.has(flagReceiving) || p.remoteEpoch != k.Data.Epoch:
		if p = l.admit(now, p, key, k); p == nil {
			return
		}
	case p.has(flagDeaf):
		l.Count.DropUnknown++
		l.Refuse(src, k, wire.ReasonUnknown)
		return
	}
	p.takeData(now, k, marked)
	l.timers.sooner(p)
}

// admit decides on a packet of a flow that is not known, and returns the peer if
// that is now to be.
func (l *Layer) admit(now mono.Time, p *Peer, key Key, k *wire.Packet) *Peer {
	d := &k.Data
	if !k.Flags.Has(wire.FlagStart) {
		l.Count.DropUnknown++
		l.Refuse(key.Remote, k, wire.ReasonUnknown)
		return nil
	}
	slot := l.slot(now)
	switch {
	case p != nil && !p.has(flagReceiving) && d.Proof != 0 && d.Proof == uint64(p.Epoch()):
		// It has got what was sent to it.
	case d.Proof == l.cookie(&key, p, d.Epoch, slot), slot > 0 && d.Proof == l.cookie(&key, p, d.Epoch, slot-1):
	default:
		l.Count.DropUnproved++
		l.reply(key.Remote, &k.Header, reply{epoch: d.Epoch, cookie: l.cookie(&key, p, d.Epoch, slot)}, wire.KindChallenge)
		return nil
	}
	if p == nil {
		if p = l.add(now, key); p == nil {
			l.Refuse(key.Remote, k, wire.ReasonFull)
			return nil
		}
	}
	l.deafen(p)
	p.remoteEpoch, p.rcvNext, p.fresh = d.Epoch, 0, 0
	p.holdAck(mono.Never)
	p.flags &^= flagAckDue | flagEcho | flagMarked | flagRepeats | flagDeaf
	if p.incarnation != 0 && p.incarnation != d.Incarnation {
		p.restarted()
	}
	p.incarnation, p.qkey = d.Incarnation, d.SourceKey
	p.set(flagReceiving|flagBegins, true)
	l.notice(p)
	return p
}

// restarted ends the flow to a peer that does not know it any more. One that had
// no proof to show has given nothing to its predecessor, and goes on.
func (p *Peer) restarted() {
	if p.has(flagStarting) && !p.has(flagProved) {
		return
	}
	if p.has(flagSending) {
		p.layer.fail(p, ErrRestarted)
	}
}

// takeData puts a segment where it belongs: to the owner if it is next, into the
// store if something is missing before it.
func (p *Peer) takeData(now mono.Time, k *wire.Packet, marked bool) {
	l := p.layer
	p.heard = now
	if marked {
		p.set(flagMarked, true)
	}
	ahead := k.Data.Seq.Sub(p.rcvNext)
	switch {
	case ahead == 0 && (p.stored == nil || p.stored.seq != p.rcvNext):
		l.arrival = arrival{peer: p, segment: k.ULPDU, flags: k.Flags}
		if !p.has(flagEcho) {
			p.echo = k.Data.Timestamp
			p.set(flagEcho, true)
		}
		return
	case ahead <= 0:
		l.Count.DropRepeated++
		p.set(flagRepeats, true)
	case ahead >= wire.Window:
		l.Count.DropBeyond++
	default:
		p.keep(k.Data.Seq, k.ULPDU)
	}
	// Something is out of order: the sender wants to know at once.
	p.echo = k.Data.Timestamp
	p.set(flagEcho, true)
	p.ackNow()
}

// holdAck says until when an acknowledgement is held back; mono.Never: none is.
func (p *Peer) holdAck(until mono.Time) {
	if p.ackAt == mono.Never {
		p.layer.holding++
	}
	if p.ackAt = until; until == mono.Never {
		p.layer.holding--
	}
}

// ackNow has an acknowledgement leave with the next packet, or alone.
func (p *Peer) ackNow() {
	p.holdAck(mono.Never)
	p.set(flagAckDue, true)
	p.layer.activate(p)
}

// ackEvery is how many segments are acknowledged together at most.
const ackEvery = 32

// taken notes that the owner has accepted the next segment. flags are those of
// the packet that brought it.
func (p *Peer) taken(now mono.Time, flags wire.Flags) {
	l := p.layer
	l.Count.Delivered++
	p.rcvNext++
	if p.fresh < 255 {
		p.fresh++
	}
	atOnce := flags.Has(wire.FlagAckNow) && !p.has(flagAnswers)
	switch {
	case p.has(flagAckDue):
	case atOnce || p.fresh >= ackEvery || p.stored != nil:
		p.ackNow()
	default:
		p.holdAck(min(p.ackAt, now.Add(l.cfg.Timing.AckHold)))
	}
}

// ackLen is the length of the acknowledgement that fillAck would give.
func (p *Peer) ackLen() int { return wire.AckLen + wire.SackWordLen*p.sackWords() }

func (p *Peer) sackWords() int {
	if p.stored == nil {
		return 0
	}
	last := p.stored
	for last.next != nil {
		last = last.next
	}
	return int(last.seq.Sub(p.rcvNext)+31) / 32
}

// fillAck says how far the flow from the peer has come.
func (p *Peer) fillAck(a *wire.Ack) {
	*a = wire.Ack{Epoch: p.remoteEpoch, Next: p.rcvNext, Echo: p.echo, Window: wire.Window, Words: uint8(p.sackWords())}
	if p.has(flagBlocked) {
		a.Window = 0
	}
	for s := p.stored; s != nil; s = s.next {
		if i := s.seq.Sub(p.rcvNext) - 1; i >= 0 {
			a.Sack[i/32] |= 1 << (i % 32)
		}
	}
}

func (p *Peer) ackFlags() wire.Flags {
	f := wire.FlagAck
	if p.has(flagMarked) {
		f |= wire.FlagMarked
	}
	if p.has(flagRepeats) {
		f |= wire.FlagDuplicate
	}
	return f
}

// acknowledged notes that an acknowledgement leaves now.
func (p *Peer) acknowledged(now mono.Time, alone bool) {
	p.fresh = 0
	p.holdAck(mono.Never)
	p.flags &^= flagAckDue | flagEcho | flagMarked | flagRepeats
	if alone {
		p.aloneAt = now
	}
}
