package rd

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Errors of flows and peers.
var (
	// ErrIdle: the peer was idle and has been removed.
	ErrIdle = errors.New("peer was idle")
	// ErrTimeout: the peer acknowledged nothing for too long.
	ErrTimeout = errors.New("peer does not acknowledge")
	// ErrBusy: the peer had no receive for too long.
	ErrBusy = errors.New("peer stays busy")
	// ErrRestarted: the peer has restarted and lost its state.
	ErrRestarted = errors.New("peer has started anew")
	// ErrRefused: the peer does not know the flow.
	ErrRefused = errors.New("peer refuses")
	// ErrFull: the layer has the maximum number of peers.
	ErrFull = errors.New("too many peers")
)

// Layer is the reliable-datagram layer of a NIC.
type Layer struct {
	Count Counters

	cfg     Config
	secrets secrets
	peerTable
	paced       int // peers delayed by pacing
	delayedAcks int // peers with a delayed acknowledgement

	turn    sendTurn
	replies nic.FIFO[reply]
	notices nic.FIFO[*Peer] // peers with events
	ready   nic.FIFO[*Peer] // peers whose next segment is stored
	arrival arrival
	offered *Peer // peer of the segment that Next returned
	blocked blockedList

	segments segmentPool
	store    storePool
	scratch  wire.Packet
}

// peerTable holds the peers of a layer.
type peerTable struct {
	peers     map[Key]*Peer
	lastFound *Peer               // cache of find
	created   uint32              // peers made so far
	peak      int                 // peers at most since the tables were made
	timers    nic.TimerHeap[Peer] // of the peers, by their age if deadlines are equal
}

// New returns a layer without peers.
func New(cfg Config) (*Layer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Layer{
		cfg: cfg, secrets: secrets{key: cfg.Secret, timesClosed: map[uint32]uint32{}},
		peerTable: peerTable{peers: map[Key]*Peer{}}, store: storePool{room: cfg.Limits.StoredBytes},
	}, nil
}

// MaxSegment returns the length of the longest segment that fits into a packet.
func (l *Layer) MaxSegment() int { return l.cfg.MaxPacket - wire.RDOverhead }

// Peers returns the number of peers.
func (l *Layer) Peers() int { return len(l.peers) }

// find returns the peer of a key, or nil.
func (t *peerTable) find(key *Key) *Peer {
	if p := t.lastFound; p != nil && p.Key == *key {
		return p
	}
	p := t.peers[*key]
	if p != nil {
		t.lastFound = p
	}
	return p
}

// Peer returns the peer for key, and creates it if necessary. The Q_Keys are those of the local and
// the remote queue pair. If the flow to the peer has ended, or the peer may have removed it, a new
// flow begins (see Epoch).
func (l *Layer) Peer(now mono.Time, key Key, ownQKey, peerQKey uint32) (*Peer, error) {
	p := l.find(&key)
	if p == nil {
		if p = l.add(now, key); p == nil {
			return nil, ErrFull
		}
	}
	recent := now.Sub(p.lastReceived) < l.cfg.Timing.ReuseWithin
	reusable := recent && p.has(flagSending)    // the peer still has the flow
	if p.send.una == p.send.next && !reusable { // a flow with unacknowledged segments goes on until it fails
		p.begin(l.secrets.newEpoch(), recent)
	}
	p.ownQKey, p.peerQKey = ownQKey, peerQKey
	return p, nil
}

// add creates a peer, or returns nil if there are too many.
func (l *Layer) add(now mono.Time, key Key) *Peer {
	if len(l.peers) >= l.cfg.Limits.Peers {
		l.Count.PeersRefused++
		return nil
	}
	l.created++
	p := &Peer{Key: key, layer: l, lastReceived: now}
	p.send.rto.at = mono.Never
	p.recv.ackAt, p.recv.lastPureAck = mono.Never, now.Add(-l.cfg.Timing.AckDelay) // none was sent recently
	p.timer.Owner, p.timer.TieBreak = p, l.created
	l.peers[key] = p
	l.peak = max(l.peak, len(l.peers))
	l.timers.Set(&p.timer, p.deadline())
	l.Count.PeersMade++
	return p
}

// queueEvent queues p for Next.
func (l *Layer) queueEvent(p *Peer) {
	if !p.has(flagEventQueued) {
		p.set(flagEventQueued, true)
		l.notices.Push(p)
	}
}

// activate queues p for Output.
func (l *Layer) activate(p *Peer) {
	if !p.has(flagQueued) {
		p.set(flagQueued, true)
		l.turn.active.Push(p)
	}
}

// Deadline returns when Tick must be called next, or mono.Never.
func (l *Layer) Deadline() mono.Time { return l.timers.Next() }

// StrictDeadline allows a driver that polls now and then to sleep this much longer than the
// deadline of an acknowledgement or a timeout. timeoutSlack is a tick of most kernels: a
// shorter sleep makes the kernel program and cancel a hardware timer for each message.
const (
	ackSlack     = time.Millisecond
	timeoutSlack = 4 * time.Millisecond
)

// StrictDeadline returns the time at which a sleeping driver must call Tick at the latest. It is
// Deadline, plus a slack for a delayed acknowledgement or a timeout, which may be late: the driver
// mostly polls earlier, for other reasons. Pacing and the removal of peers have no slack.
func (l *Layer) StrictDeadline() mono.Time {
	at := l.timers.Next()
	if at == mono.Never || l.paced > 0 {
		return at
	}
	p := l.timers.First()
	idle := p.send.una == p.send.next && p.recv.ackAt == mono.Never && p.send.rto.at == mono.Never
	if idle && at == p.deadline() { // the removal of the peer
		return at
	}
	if l.delayedAcks > 0 {
		return at.Add(ackSlack)
	}
	return at.Add(timeoutSlack)
}

// duePeer returns a peer whose deadline has passed, or nil. It postpones timers that expired before
// the deadline of their peer. The caller must handle the deadline and set the peer's timer again.
func (l *Layer) duePeer(now mono.Time) *Peer {
	for l.timers.Next() <= now {
		p := l.timers.First()
		at := p.deadline()
		if at <= now {
			return p
		}
		l.timers.Set(&p.timer, at)
	}
	return nil
}

// Tick handles every deadline that has passed: it removes idle peers, sends delayed
// acknowledgements, resumes paced peers, and handles timeouts.
func (l *Layer) Tick(now mono.Time) {
	for p := l.duePeer(now); p != nil; p = l.duePeer(now) {
		if p.send.una == p.send.next && now >= p.lastReceived.Add(l.cfg.Timing.Idle) {
			l.Count.PeersIdle++
			l.removePeer(p)
			p.err = ErrIdle
			l.queueEvent(p)
			continue
		}
		if p.recv.ackAt <= now {
			p.setAckTimer(mono.Never)
			p.set(flagAckDue, true)
			p.set(flagDelayAcks, false) // no data packet carried it
			l.activate(p)
		}
		if p.has(flagPaced) && p.send.cc.resumeAt() <= now {
			p.setPaced(false)
			l.activate(p)
		}
		if p.send.rto.at <= now {
			p.timeout(now)
		}
		l.timers.Set(&p.timer, p.deadline())
	}
}
