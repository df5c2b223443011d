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
	RemoteAddr        netip.AddrPort
	LocalQP, RemoteQP uint32
}

// Peer is the state of a remote queue pair for one local queue pair: a flow of segments to it,
// a flow from it, or both, independent of each other. It is kept small, since idle peers need
// it too. Owner is free for use by the owner of the layer.
type Peer struct {
	Key   Key
	Owner any

	layer             *Layer
	err               error // why the flow to the peer failed, or why the peer is gone
	lastReceived      mono.Time
	send              sendFlow
	recv              recvFlow
	ownQKey, peerQKey uint32 // of the local and the remote queue pair
	incarnation       uint32 // of the peer; 0 if not known
	acked             uint32 // segments that EventAcked is to report
	flags             peerFlags

	timer                    nic.Timer[Peer]
	prevBlocked, nextBlocked *Peer // in Layer.blocked
}

// sendFlow is the flow to a peer: segments una..next-1 are in the list, of which una..sent-1 have
// been sent at least once.
type sendFlow struct {
	oldest, newest  *segment
	unsent          *segment // the first that has never been sent
	lostSearchStart *segment // no segment before it is lost; nil: start at oldest
	rto             retransmitTimer
	cc              congestion
	loss            lossDetection
	proof           uint64
	epoch           wire.Epoch
	una, sent, next wire.Seq
	sacked, lost    uint16 // of those that were sent
	window          uint16 // of the receiver
}

// retransmitTimer is the retransmission timer of a flow, and how long the flow waited for the peer.
type retransmitTimer struct {
	at       mono.Time     // mono.Never if the timer is stopped
	progress mono.Time     // time of the last acknowledgement, busy report or first segment
	waited   time.Duration // timeouts since then of packets that were transmitted
	busyFor  time.Duration // waits for a busy peer since it first said so
	backoff  uint8         // doublings of the timeout, or of the wait for a busy peer
}

// lossDetection numbers the transmissions of a flow, to find segments that later ones overtook.
type lossDetection struct {
	sent    uint32 // transmissions so far
	arrived uint32 // the latest of them that is known to have arrived
	reorder uint8  // transmissions that may overtake one before it counts as lost
}

// recvFlow is the flow from a peer.
type recvFlow struct {
	stored      *stored // segments received out of order, sorted
	ackAt       mono.Time
	lastPureAck mono.Time // when an acknowledgement was last sent without data
	epoch       wire.Epoch
	next        wire.Seq
	echo        uint32
	unacked     uint8 // segments accepted since the last acknowledgement
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
	flagMore                              // the owner has segments for which there is no room
	flagBlocked                           // the owner has deferred the next segment
	flagQueued                            // is in Layer.turn.active
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
	return p.send.epoch
}

// TheirKey returns the Q_Key of the remote queue pair, as the peer or the owner has set it.
func (p *Peer) TheirKey() uint32 { return p.peerQKey }

// Waiting returns the number of unsent and unacknowledged segments.
func (p *Peer) Waiting() int { return int(p.send.next.Sub(p.send.una)) }

// outstanding returns the number of segments that were sent and not acknowledged.
func (f *sendFlow) outstanding() int32 { return f.sent.Sub(f.una) }

// inFlight returns the number of outstanding segments that are neither sacked nor lost.
func (f *sendFlow) inFlight() int32 { return f.outstanding() - int32(f.sacked) - int32(f.lost) }

// deadline returns the peer's next deadline: of retransmission, acknowledgement or pacing, or its
// removal when idle.
func (p *Peer) deadline() mono.Time {
	d := p.lastReceived.Add(p.layer.cfg.Timing.Idle)
	if p.send.una != p.send.next {
		d = mono.Never // a peer with unacknowledged segments is not removed: its flow fails first
	}
	d = min(d, p.send.rto.at, p.recv.ackAt)
	if p.has(flagPaced) {
		d = min(d, p.send.cc.resumeAt())
	}
	return d
}
