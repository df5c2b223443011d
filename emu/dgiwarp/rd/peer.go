package rd

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Key identifies a peer: a local queue pair, and a remote socket and queue pair.
type Key struct {
	Remote   netip.AddrPort
	Local    uint32
	RemoteQP uint32
}

// Peer is the state of a remote queue pair for one local queue pair: a flow of segments to it,
// a flow from it, or both, independent of each other. It is kept small, since idle peers need
// it too. Owner is free for use by the owner of the layer.
type Peer struct {
	Key   Key
	Owner any

	layer        *Layer
	err          error // why the flow to the peer failed, or why the peer is gone
	lastReceived mono.Time

	// The flow to the peer: segments una..next-1 are in the list, of which
	// una..sendNext-1 have been sent at least once.
	oldest, newest *segment
	unsent         *segment // the first that has never been sent
	resend         *segment // no segment before it is lost; nil: start at oldest
	timeoutAt      mono.Time
	progress       mono.Time     // time of the last acknowledgement or busy report
	waited         time.Duration // timeouts since then of packets that were transmitted
	busyFor        time.Duration // waits for a busy peer since it first said so
	paceAt         mono.Time     // when the packets sent so far should have left
	proof          uint64
	una            wire.Seq
	sendNext       wire.Seq
	next           wire.Seq
	recovery       wire.Seq // end of what was under way at the last cut of cwnd
	epoch          wire.Epoch
	ownKey, qkey   uint32 // of the QP here, and of the one there
	incarnation    uint32 // of the peer; 0 if not known
	sentNo         uint32 // transmissions so far
	arrivedNo      uint32 // the latest of them that is known to have arrived
	srtt, rttvar   uint32 // nanoseconds
	acked          uint32 // segments to report
	sacked, lost   uint16 // of those that were sent
	cwnd, ssthresh uint16
	credit         uint16 // towards the next packet of cwnd
	window         uint16
	backoff        uint8 // doublings of the timeout, or of the wait for a busy peer
	reorder        uint8 // transmissions that may overtake one before it counts as lost

	// The flow from the peer.
	unacked     uint8 // segments accepted since the last acknowledgement
	flags       peerFlags
	remoteEpoch wire.Epoch
	rcvNext     wire.Seq
	echo        uint32
	stored      *stored // segments received out of order, sorted
	ackAt       mono.Time
	lastPureAck mono.Time // when an acknowledgement was last sent without data

	// Places in the tables of the layer.
	timer        nic.Timer[Peer]
	prev, follow *Peer // among those that were refused a receive
}

type peerFlags uint32

const (
	flagStarting    peerFlags = 1 << iota // no segment to the peer was acknowledged yet
	flagSending                           // the flow to the peer has an epoch
	flagProved                            // the flow has a proof: the peer may have accepted segments
	flagBusy                              // the peer has no receive
	flagProbe                             // a busy peer must be probed
	flagPaced                             // waits for paceAt
	flagReceiving                         // the flow from the peer has an epoch
	flagBegins                            // EventBegins is not reported yet
	flagRefused                           // the flow from the peer is refused
	flagAckDue                            // an acknowledgement must be sent
	flagEcho                              // echo is set
	flagMarked                            // a packet had a congestion mark
	flagDuplicate                         // a duplicate packet was received
	flagDelayAcks                         // delay acknowledgements: the application responds soon
	flagBlocked                           // the owner has deferred the next segment
	flagQueued                            // is in Layer.active
	flagEventQueued                       // is in Layer.notices
	flagRemoved                           // is no longer in Layer.peers
)

// has reports whether one of the flags f is set.
func (p *Peer) has(f peerFlags) bool { return p.flags&f != 0 }

// set sets or clears the flags f.
func (p *Peer) set(f peerFlags, on bool) {
	if on {
		p.flags |= f
	} else {
		p.flags &^= f
	}
}

// Gone reports whether the peer has been removed.
func (p *Peer) Gone() bool { return p.has(flagRemoved) }

// Epoch returns the epoch of the flow to the peer, or 0 if there is none. With a new epoch,
// message sequence numbers restart.
func (p *Peer) Epoch() wire.Epoch {
	if !p.has(flagSending) {
		return 0
	}
	return p.epoch
}

// RemoteEpoch returns the epoch of the flow from the peer, if there is one.
func (p *Peer) RemoteEpoch() wire.Epoch { return p.remoteEpoch }

// TheirKey returns the Q_Key of the remote queue pair, as the peer or the owner has set it.
func (p *Peer) TheirKey() uint32 { return p.qkey }

// Waiting returns the number of unsent and unacknowledged segments.
func (p *Peer) Waiting() int { return int(p.next.Sub(p.una)) }

// outstanding returns the number of segments that were sent and not acknowledged.
func (p *Peer) outstanding() int32 { return p.sendNext.Sub(p.una) }

// inFlight returns the number of outstanding segments that are neither selectively
// acknowledged nor lost.
func (p *Peer) inFlight() int32 { return p.outstanding() - int32(p.sacked) - int32(p.lost) }

// onlyRemovalAt reports whether the next deadline of the peer is its removal at that time.
func (p *Peer) onlyRemovalAt(at mono.Time) bool {
	return p.una == p.next && p.ackAt == mono.Never && p.timeoutAt == mono.Never && at == p.deadline()
}

// deadline returns the next deadline of the peer, at the latest its removal.
func (p *Peer) deadline() mono.Time {
	d := p.lastReceived.Add(p.layer.cfg.Timing.Idle)
	if p.una != p.next {
		d = mono.Never // a peer with segments is not removed: its flow fails first
	}
	d = min(d, p.timeoutAt, p.ackAt)
	if p.has(flagPaced) {
		d = min(d, p.resumeAt())
	}
	return d
}
