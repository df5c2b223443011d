package rd

import (
	"github.com/fabrictest/fabrictest/emu/internal/queue"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// fail ends the flow to a peer, which Next reports. Nobody knows what of the
// segments that waited has arrived.
func (l *Layer) fail(p *Peer, why error) {
	l.Count.FlowsFailed++
	p.End()
	p.err = why
	l.notice(p)
}

// release lets go of all segments to the peer.
func (p *Peer) release() {
	for s := p.oldest; s != nil; {
		s = p.layer.segments.release(s)
	}
	p.oldest, p.newest, p.unsent, p.resend = nil, nil, nil, nil
	p.una, p.sendNext, p.sacked, p.lost = p.next, p.next, 0, 0
	p.set(flagBusy|flagProbe, false)
	p.pace(false)
	p.timeoutAt = mono.Never
}

// End ends the flow to a peer, if there is one, without a report. Segments that
// wait may or may not arrive, and the next that is sent begins another.
func (p *Peer) End() {
	p.release()
	p.set(flagSending|flagStarting, false)
}

// Deafen refuses whatever else the flow from the peer brings, so that the peer
// learns that the flow has failed. It can begin another.
func (p *Peer) Deafen() {
	if p.has(flagReceiving) && !p.Gone() {
		p.layer.deafen(p)
		p.holdAck(mono.Never)
		p.set(flagAckDue, false)
		p.set(flagDeaf, true)
	}
}

// deafen lets go of all that came from the peer.
func (l *Layer) deafen(p *Peer) {
	l.blocked.remove(p)
	for p.stored != nil {
		l.unstore(p)
	}
	if l.arrival.peer == p {
		l.arrival = arrival{}
	}
	if l.offered == p {
		l.offered = nil
	}
}

// forget takes a peer out of all tables.
func (l *Layer) forget(p *Peer) {
	p.release()
	l.deafen(p)
	p.holdAck(mono.Never)
	delete(l.peers, p.Key)
	if l.latest == p {
		l.latest = nil
	}
	l.timers.remove(p)
	if l.peak > smallTable && len(l.peers) < l.peak/8 {
		l.shrink()
	}
}

// smallTable is how many peers a table may have been made for and not be worth
// making smaller.
const smallTable = 1024

// shrink gives back the memory of tables that were made for many more peers than
// are left: by themselves they never do.
func (l *Layer) shrink() {
	peers := make(map[Key]*Peer, len(l.peers))
	for k, p := range l.peers { //layers:ordered a map of the same is made
		peers[k] = p
	}
	l.peers, l.peak = peers, len(peers)
	l.timers.heap = append(make([]*Peer, 0, len(peers)), l.timers.heap...)
	for _, q := range []*queue.FIFO[*Peer]{&l.active, &l.notices, &l.ready} {
		var small queue.FIFO[*Peer]
		for p, ok := q.Pop(); ok; p, ok = q.Pop() {
			small.Push(p)
		}
		*q = small
	}
}

// PeersOf lists the peers of a queue pair of this host.
func (l *Layer) PeersOf(local uint32) []*Peer {
	var all []*Peer
	for _, p := range l.timers.heap {
		if p.Key.Local == local {
			all = append(all, p)
		}
	}
	return all
}

// CloseQP forgets all peers of a queue pair of this host, which are not reported.
// If its number is used again, that is another queue pair to them.
func (l *Layer) CloseQP(local uint32) {
	l.lives[local]++
	for _, p := range l.PeersOf(local) {
		l.forget(p)
		p.acked, p.err = 0, nil
	}
}
