package rd

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Key names a peer: a queue pair here, and one behind a socket elsewhere.
type Key struct {
	Remote   netip.AddrPort
	Local    uint32
	RemoteQP uint32
}

// Peer is what a layer knows of one queue pair elsewhere, as one of its own sees
// it: a flow of segments to it, a flow from it, or both. Either begins and ends
// without the other. Its size is the price of a peer with which nothing is under
// way, so fields are as small as they can be. Owner is for the owner of the
// layer.
type Peer struct {
	Key   Key
	Owner any

	layer *Layer
	err   error // why the flow to the peer failed, or why the peer is gone
	heard mono.Time

	// The flow to the peer: segments una..next-1 are in the list, of which
	// una..sendNext-1 have been sent at least once.
	oldest, newest *segment
	unsent         *segment // the first that has never been sent
	resend         *segment // no segment before it is lost; nil: start at oldest
	timeoutAt      mono.Time
	progress       mono.Time     // when the peer last took something, or said that it is busy
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
	fresh       uint8 // segments taken since the last acknowledgement
	flags       peerFlags
	remoteEpoch wire.Epoch
	rcvNext     wire.Seq
	echo        uint32
	stored      *stored // what came early, in order
	ackAt       mono.Time
	aloneAt     mono.Time // when an acknowledgement last left alone

	// Places in the tables of the layer.
	heapAt       mono.Time
	number       uint64
	prev, follow *Peer // among those that were refused a receive
	heapIndex    int32
}

type peerFlags uint32

const (
	flagStarting  peerFlags = 1 << iota // nothing of the flow to the peer was acknowledged yet
	flagSending                         // the flow to the peer has an epoch
	flagProved                          // it has a proof: the peer may have taken segments
	flagBusy                            // the peer said so
	flagProbe                           // and it is time to ask again
	flagPaced                           // waits for paceAt
	flagReceiving                       // the flow from the peer has an epoch
	flagBegins                          // and its owner has yet to be told
	flagDeaf                            // but is refused
	flagAckDue                          // an acknowledgement must leave
	flagEcho                            // echo is set
	flagMarked                          // a packet came with a congestion mark
	flagRepeats                         // a packet came again
	flagAnswers                         // acknowledgements may wait: the program answers soon
	flagBlocked                         // the owner has refused the next segment
	flagQueued                          // is in Layer.active
	flagNoticed                         // is in Layer.notices
)

func (p *Peer) has(f peerFlags) bool { return p.flags&f != 0 }

func (p *Peer) set(f peerFlags, on bool) {
	if on {
		p.flags |= f
	} else {
		p.flags &^= f
	}
}

// Gone reports whether the peer has been forgotten.
func (p *Peer) Gone() bool { return p.heapIndex < 0 }

// Epoch is that of the flow to the peer; if it is another than it was, numbers
// that count messages begin anew. It is 0 if there is no flow.
func (p *Peer) Epoch() wire.Epoch {
	if !p.has(flagSending) {
		return 0
	}
	return p.epoch
}

// RemoteEpoch is that of the flow from the peer, if there is one.
func (p *Peer) RemoteEpoch() wire.Epoch { return p.remoteEpoch }

// TheirKey is the key of the queue pair over there, as it or the owner has told.
func (p *Peer) TheirKey() uint32 { return p.qkey }

// Waiting is how many segments wait for acknowledgement, or to be sent.
func (p *Peer) Waiting() int { return int(p.next.Sub(p.una)) }

// outstanding is how many segments were sent and not acknowledged.
func (p *Peer) outstanding() int32 { return p.sendNext.Sub(p.una) }

// inFlight is how many of them may still be on their way.
func (p *Peer) inFlight() int32 { return p.outstanding() - int32(p.sacked) - int32(p.lost) }

// forgottenAt reports whether the peer waits for nothing but to be forgotten then.
func (p *Peer) forgottenAt(at mono.Time) bool {
	return p.una == p.next && p.ackAt == mono.Never && p.timeoutAt == mono.Never && at == p.deadline()
}

// deadline is when the peer needs the time, at the latest when it is to be
// forgotten.
func (p *Peer) deadline() mono.Time {
	d := p.heard.Add(p.layer.cfg.Timing.Idle)
	if p.una != p.next {
		d = mono.Never // giving up comes first
	}
	d = min(d, p.timeoutAt, p.ackAt)
	if p.has(flagPaced) {
		d = min(d, p.resumeAt())
	}
	return d
}
