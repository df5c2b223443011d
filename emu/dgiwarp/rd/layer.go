package rd

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/queue"
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
	latest  *Peer // that find has found: packets come in runs
	peak    int   // peers at most since the tables were made
	timers  timerHeap
	active  queue.FIFO[*Peer] // have something to send, perhaps
	current *Peer             // whose turn it is
	quota   int               // packets that are left of its turn
	paced   int               // peers that wait for their pace
	holding int               // peers for which an acknowledgement is held back
	notices queue.FIFO[*Peer] // have something to report
	ready   queue.FIFO[*Peer] // have a stored segment that is next
	replies queue.FIFO[reply]

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

// MaxSegment is the longest segment that fits into a packet.
func (l *Layer) MaxSegment() int { return l.maxSegment }

// Peers is how many peers are known.
func (l *Layer) Peers() int { return len(l.peers) }

// find returns the peer of a key, or nil.
func (l *Layer) find(key *Key) *Peer {
	if p := l.latest; p != nil && p.Key == *key {
		return p
	}
	p := l.peers[*key]
	if p != nil {
		l.latest = p
	}
	return p
}

// Peer returns the peer to send to under key, and makes it if need be. own and
// theirs are the keys of the queue pairs at both ends. If the flow to it has
// ended, or may have been forgotten over there, it begins anew (see Epoch).
func (l *Layer) Peer(now mono.Time, key Key, own, theirs uint32) (*Peer, error) {
	p := l.find(&key)
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

// notice has Next look at p.
func (l *Layer) notice(p *Peer) {
	if !p.has(flagNoticed) {
		p.set(flagNoticed, true)
		l.notices.Push(p)
	}
}

// activate has Output look at p.
func (l *Layer) activate(p *Peer) {
	if !p.has(flagQueued) {
		p.set(flagQueued, true)
		l.active.Push(p)
	}
}

// Deadline is when Tick must be called next; mono.Never if not at all.
func (l *Layer) Deadline() mono.Time { return l.timers.next() }

// By how much later than an acknowledgement or a timeout is due a driver may
// sleep, who has others that look now and then: neither is worth waking anybody
// for. For a timeout it is a tick of most kernels: with one under way, as between
// question and answer, a sleep that might end before the next tick makes the
// kernel set a hardware timer and take it back, for each message.
const (
	ackSlack     = time.Millisecond
	timeoutSlack = 4 * time.Millisecond
)

// StrictDeadline is Deadline, but later by a slack if it is that of an
// acknowledgement or a timeout. Those of pace are kept, and to forget a peer on
// time costs nothing.
func (l *Layer) StrictDeadline() mono.Time {
	at := l.timers.next()
	switch {
	case at == mono.Never || l.paced > 0 || l.timers.heap[0].forgottenAt(at):
		return at
	case l.holding > 0:
		return at.Add(ackSlack)
	}
	return at.Add(timeoutSlack)
}

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
			p.holdAck(mono.Never)
			p.set(flagAckDue, true)
			p.set(flagAnswers, false) // it waited for nothing
			l.activate(p)
		}
		if p.has(flagPaced) && p.resumeAt() <= now {
			p.pace(false)
			l.activate(p)
		}
		if p.timeoutAt <= now {
			p.timeout(now)
		}
		l.timers.settle(p)
	}
}
