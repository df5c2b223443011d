package rd

import (
	"encoding/binary"
	"errors"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Why a flow failed, or a peer is gone, or cannot be had.
var (
	// ErrIdle is a peer that has been silent for long.
	ErrIdle = errors.New("peer was idle")
	// ErrTimeout is a peer that acknowledged nothing for too long.
	ErrTimeout = errors.New("peer does not acknowledge")
	// ErrBusy is a peer that had no receive for too long.
	ErrBusy = errors.New("peer stays busy")
	// ErrRestarted is a peer that has started anew, and forgotten everything.
	ErrRestarted = errors.New("peer has started anew")
	// ErrRefused is a peer that says that it does not know the flow.
	ErrRefused = errors.New("peer refuses")
	// ErrFull is a layer that has as many peers as it may have.
	ErrFull = errors.New("too many peers")
)

// Layer is the reliable-datagram layer of a NIC.
type Layer struct {
	Count Counters

	cfg    Config
	epochs uint64            // made so far
	born   uint64            // peers made so far
	lives  map[uint32]uint32 // how often each QP was closed

	peers   map[Key]*Peer
	peak    int // peers at most since the tables were made
	timers  timerHeap
	active  fifo[*Peer] // have something to send, perhaps
	current *Peer       // whose turn it is
	quota   int         // packets that are left of its turn
	notices fifo[*Peer] // have something to report
	ready   fifo[*Peer] // have a stored segment that is next
	replies fifo[reply]

	arrival        arrival
	offered        *Peer // whose segment Next has shown
	blocked        blockedList
	segments       segmentPool
	store          storePool
	scratch        wire.Packet
	hashed         [56]byte
	maxSegment     int
	storedByteRoom int
}

// New returns a layer without peers.
func New(cfg Config) (*Layer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Layer{
		cfg: cfg, peers: map[Key]*Peer{}, lives: map[uint32]uint32{},
		maxSegment: cfg.MaxPacket - wire.RDOverhead, storedByteRoom: cfg.Limits.StoredBytes,
	}, nil
}

// Domains keep what is derived from the secret for one purpose from being of
// use for another.
const (
	domainIncarnation = 1
	domainEpoch       = 2
	domainCookie      = 3
)

func (l *Layer) derive(domain uint8, n uint64) uint64 {
	b := l.hashed[:16]
	clear(b)
	b[0] = domain
	binary.LittleEndian.PutUint64(b[8:], n)
	return sipHash(&l.cfg.Secret, b)
}

// incarnation tells this life of a queue pair from those before: of the queue
// pair, and of the host. It is never 0, which stands for one that is not known.
func (l *Layer) incarnation(local uint32) uint32 {
	return uint32(l.derive(domainIncarnation, uint64(l.lives[local])<<32|uint64(local))) | 1
}

// newEpoch returns one that nobody can guess, and never 0: that proves nothing.
func (l *Layer) newEpoch() wire.Epoch {
	for {
		l.epochs++
		if e := wire.Epoch(l.derive(domainEpoch, l.epochs)); e != 0 {
			return e
		}
	}
}

// cookie is what a peer must bring to start a flow of the given epoch, now in the
// given slot of time. It is bound to the flow that the new one would replace, so
// that it starts a flow once.
func (l *Layer) cookie(k *Key, p *Peer, e wire.Epoch, slot uint64) uint64 {
	life := l.incarnation(k.Local)
	b := l.hashed[:56]
	clear(b)
	b[0] = domainCookie
	if p != nil && p.has(flagReceiving) {
		b[1] = 1
		binary.LittleEndian.PutUint32(b[4:], uint32(p.remoteEpoch))
	}
	binary.LittleEndian.PutUint32(b[8:], k.Local)
	binary.LittleEndian.PutUint32(b[12:], k.RemoteQP)
	binary.LittleEndian.PutUint32(b[16:], uint32(e))
	binary.LittleEndian.PutUint16(b[20:], k.Remote.Port())
	binary.LittleEndian.PutUint64(b[24:], slot)
	addr := k.Remote.Addr().As16()
	copy(b[32:], addr[:])
	binary.LittleEndian.PutUint32(b[48:], life)
	return sipHash(&l.cfg.Secret, b)
}

func (l *Layer) slot(now mono.Time) uint64 { return uint64(now) / uint64(l.cfg.Timing.CookieSlot) }

// MaxSegment is the longest segment that fits into a packet.
func (l *Layer) MaxSegment() int { return l.maxSegment }

// Peers is how many peers are known.
func (l *Layer) Peers() int { return len(l.peers) }

// Peer returns the peer to send to under key, and makes it if need be. own and
// theirs are the keys of the queue pairs at both ends. If the flow to it has
// ended, or may have been forgotten over there, it begins anew (see Epoch).
func (l *Layer) Peer(now mono.Time, key Key, own, theirs uint32) (*Peer, error) {
	p := l.peers[key]
	if p == nil {
		if p = l.add(now, key); p == nil {
			return nil, ErrFull
		}
	}
	fresh := now.Sub(p.heard) < l.cfg.Timing.Fresh
	if p.una == p.next && !(fresh && p.has(flagSending)) {
		p.begin(l.newEpoch(), fresh)
	}
	p.ownKey, p.qkey = own, theirs
	return p, nil
}

// add makes a peer, or returns nil if there are too many.
func (l *Layer) add(now mono.Time, key Key) *Peer {
	if len(l.peers) >= l.cfg.Limits.Peers {
		l.Count.PeersRefused++
		return nil
	}
	l.born++
	p := &Peer{Key: key, layer: l, heard: now, number: l.born, timeoutAt: mono.Never, ackAt: mono.Never, aloneAt: now.Add(-l.cfg.Timing.AckHold)}
	l.peers[key] = p
	l.peak = max(l.peak, len(l.peers))
	l.timers.put(p)
	l.Count.PeersMade++
	return p
}

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
	p.set(flagBusy|flagProbe|flagPaced, false)
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
		p.ackAt = mono.Never
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
	delete(l.peers, p.Key)
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
	for _, f := range []*fifo[*Peer]{&l.active, &l.notices, &l.ready} {
		f.shrink()
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

// notice has Next look at p.
func (l *Layer) notice(p *Peer) {
	if !p.has(flagNoticed) {
		p.set(flagNoticed, true)
		l.notices.push(p)
	}
}

// activate has Output look at p.
func (l *Layer) activate(p *Peer) {
	if !p.has(flagQueued) {
		p.set(flagQueued, true)
		l.active.push(p)
	}
}

// Deadline is when Tick must be called next; mono.Never if not at all.
func (l *Layer) Deadline() mono.Time { return l.timers.next() }

// Tick handles every deadline that has passed.
func (l *Layer) Tick(now mono.Time) {
	for p := l.timers.due(now); p != nil; p = l.timers.due(now) {
		if p.una == p.next && now >= p.heard.Add(l.cfg.Timing.Idle) {
			l.Count.PeersIdle++
			l.forget(p)
			p.err = ErrIdle
			l.notice(p)
			continue
		}
		if p.ackAt <= now {
			p.ackAt = mono.Never
			p.set(flagAckDue, true)
			p.set(flagAnswers, false) // it waited for nothing
			l.activate(p)
		}
		if p.has(flagPaced) && p.resumeAt() <= now {
			p.set(flagPaced, false)
			l.activate(p)
		}
		if p.timeoutAt <= now {
			p.timeout(now)
		}
		l.timers.settle(p)
	}
}
