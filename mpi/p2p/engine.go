package p2p

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Protocol is a rendezvous protocol.
type Protocol uint8

// The protocols.
const (
	RGET Protocol = iota
	RPUT
	Speculative
)

func (p Protocol) String() string { return [...]string{"rget", "rput", "speculative"}[p] }

// Config configures an engine. The zero Config sends all messages by RGET.
type Config struct {
	Protocol Protocol
	// EagerLimit is the size of the largest eager message.
	EagerLimit int
	// NoEarlyProgress disables the progress call that begins speculative sends and receives.
	NoEarlyProgress bool
	// Adaptive stops RTRs for an envelope when too few are used; it resumes when enough would be.
	Adaptive bool
	// Usage is the fraction of RTRs that must be used; 0.8 if 0.
	Usage float64
	// Sample is the number of RTRs over which Usage is evaluated; 16 if 0.
	Sample int
	// MaxMispredicted is the number of consecutive receives of an envelope that may send an RTR for
	// an eager message. RTRs then stop until a rendezvous message; 4 if 0.
	MaxMispredicted int
}

// Transport sends an engine's messages and moves its data. Engine.Lost is called for a lost peer.
type Transport interface {
	Now() time.Duration
	// CanSend reports whether there is credit for an eager message of n bytes.
	CanSend(peer, n int) bool
	// Send sends a message to a peer, in order. The header may be reused at once. Only
	// eager messages have data and an owner; Engine.SendDone returns the data, possibly
	// before Send returns. All owners are of type *Request.
	Send(peer int, h *wire.Header, data []byte, owner any)
	// Register registers memory; Release gives the region back.
	Register(buf []byte) (wire.Region, error)
	Release(wire.Region)
	// Read reads a peer's memory; Engine.ReadDone follows.
	Read(peer int, t wire.Transfer, owner any)
	// Write writes to a peer's memory. t.Then arrives after the data; Engine.WriteDone follows.
	Write(peer int, t wire.Transfer, owner any)
	// Progress processes received messages, and reports whether there were any.
	Progress() bool
}

// Errors of requests.
var (
	ErrTruncated = errors.New("message is longer than the receive")
	ErrLost      = errors.New("peer is lost")
	// ErrProtocol: a peer has sent a message that the protocol does not allow.
	ErrProtocol = errors.New("peer violates the protocol")
)

// Engine implements the protocols for one rank. It is not safe for concurrent use.
type Engine struct {
	Stats Stats
	// DependsOn reports whether a receive in a context from a rank, or from Any, cannot complete
	// once rank lost is lost. If nil, receives from lost and Any cannot.
	DependsOn func(context uint32, from, lost int) bool
	// Copied, if not nil, is called for the copy of an unexpected message to its receive. The
	// transport has counted the copy of every message that arrives.
	Copied func(bytes int)
	// Arriving and Matched, if not nil, are called for each message, but not for advertised ones: when it
	// arrives, and when a receive matches it, with the result of Arriving. Messages with the same
	// envelope arrive in the order of their sends.
	Arriving func(peer int, h *wire.Header) any
	Matched  func(r *Request, arrival any)

	cfg        Config
	transport  Transport
	posted     Posted[*Request]
	unexpected Unexpected[*unexpectedMessage]
	requests   requestTable
	speculation
	advertisements
	losses
	freeMessages []*unexpectedMessage
	sendHeader   wire.Header // header being sent; a local variable would be heap-allocated
}

// speculation is the state of the speculative protocol.
type speculation struct {
	senders        map[Envelope]*senderState   // as a sender; the keys have the receiving rank as Source
	receiverStates map[Envelope]*receiverState // as a receiver
	maxEnvelopes   int                         // limit of each
	evictAt        int                         // number of senders at which unused ones are evicted
	evicted        bool                        // some sender state was evicted
}

// losses are the failures of peers and contexts, with their errors.
type losses struct {
	lost           map[int]error
	lostOrder      []int // keys of lost, in order
	failedContexts map[uint32]error
}

// New returns an engine for one rank. By default, an adaptive sender stops RTRs (ready-to-receive
// messages) if less than 80 % (Usage) of 16 (Sample) were used, and a receiver sends no more after
// 4 in a row for messages that came eagerly (MaxMispredicted).
func New(cfg Config, t Transport) *Engine {
	cfg.Usage = cmp.Or(cfg.Usage, 0.8)
	cfg.Sample = cmp.Or(cfg.Sample, 16)
	cfg.MaxMispredicted = cmp.Or(cfg.MaxMispredicted, 4)
	return &Engine{
		cfg: cfg, transport: t, losses: losses{lost: make(map[int]error), failedContexts: make(map[uint32]error)},
		speculation: speculation{
			senders: make(map[Envelope]*senderState), receiverStates: make(map[Envelope]*receiverState),
			maxEnvelopes: maxEnvelopes, evictAt: maxEnvelopes,
		},
	}
}

// unexpectedMessage is a received message that no receive has matched.
type unexpectedMessage struct {
	Node[*unexpectedMessage]
	peer     int
	header   wire.Header
	data     []byte // of an eager message
	rtsAcked bool   // an RTSAck was sent: the sender expects no RTR for it
	arrival  any    // the result of Engine.Arriving
}

// noteArrival calls Arriving, if it is set.
func (e *Engine) noteArrival(peer int, h *wire.Header) any {
	if e.Arriving == nil {
		return nil
	}
	return e.Arriving(peer, h)
}

// noteMatch calls Matched, if it is set.
func (e *Engine) noteMatch(r *Request, arrival any) {
	if e.Matched != nil {
		e.Matched(r, arrival)
	}
}

// addUnexpected queues a copy of a message that no posted receive matches.
func (e *Engine) addUnexpected(peer int, h *wire.Header, data []byte) {
	msg := e.allocUnexpected(peer, h, data)
	msg.arrival = e.noteArrival(peer, h)
	e.unexpected.Add(&msg.Node)
	e.Stats.Unexpected++
	e.Stats.UnexpectedBytes += uint64(len(data))
	e.Stats.MaxUnexpected = max(e.Stats.MaxUnexpected, e.unexpected.Len())
}

// allocUnexpected returns a copy of a message.
func (e *Engine) allocUnexpected(peer int, h *wire.Header, data []byte) *unexpectedMessage {
	var msg *unexpectedMessage
	if n := len(e.freeMessages); n > 0 {
		msg, e.freeMessages = e.freeMessages[n-1], e.freeMessages[:n-1]
	} else {
		msg = new(unexpectedMessage)
		msg.Value = msg
	}
	msg.Envelope = Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag}
	msg.peer, msg.header, msg.rtsAcked = peer, *h, false
	msg.data = append(msg.data[:0], data...)
	return msg
}

// freeUnexpected returns a dequeued unexpected message to the free list.
func (e *Engine) freeUnexpected(msg *unexpectedMessage) {
	const maxFree = 64
	if len(e.freeMessages) < maxFree {
		e.freeMessages = append(e.freeMessages, msg)
	}
}

// Arrived handles a message of a peer. The data of eager messages is valid until Arrived
// returns. The error is an ErrProtocol.
func (e *Engine) Arrived(peer int, h *wire.Header, data []byte) error {
	if e.lost[peer] != nil {
		return nil // a late message of a lost peer
	}
	switch h.Kind {
	case wire.Eager:
		return e.handleEager(peer, h, data)
	case wire.RTS:
		return e.handleRTS(peer, h)
	case wire.RTR:
		return e.handleRTR(peer, h)
	case wire.RTRAck:
		return e.handleRTRAck(peer, h)
	case wire.SyncAck, wire.CTS, wire.RTSAck:
		return e.handleSendReply(peer, h)
	case wire.Done:
		return e.handleDone(peer, h)
	case wire.Revoke:
		return e.handleRevoke(peer, h)
	case wire.Revoked:
		return e.handleRevoked(peer, h)
	}
	return protocolError(peer, h, "unknown kind")
}

// protocolError returns the ErrProtocol for a message.
func protocolError(peer int, h *wire.Header, why string) error {
	return fmt.Errorf("rank %d: %v: %w: %s", peer, h.Kind, ErrProtocol, why)
}

// Lost fails all requests that need a peer: sends to it, receives from it, and posted receives that
// may need a message from it. A lost peer stays lost.
func (e *Engine) Lost(peer int, cause error) {
	if e.lost[peer] != nil {
		return
	}
	err := fmt.Errorf("rank %d: %w: %w", peer, ErrLost, cause)
	e.lost[peer] = err
	e.lostOrder = append(e.lostOrder, peer)
	for _, r := range e.requests.all() {
		switch {
		case r.Peer == peer || r.isRecv && r.state == stateTransferring && r.Source == peer:
			e.fail(r, err)
		case r.isRecv && r.state == statePosted && e.dependsOn(r, peer):
			e.cancelRecv(r, err)
		}
	}
	// In the keys of e.senders, Source is the rank to which this rank sends.
	maps.DeleteFunc(e.senders, func(k Envelope, _ *senderState) bool { return int(k.Source) == peer })
}

// dependsOn reports whether a posted receive cannot complete once a peer is lost. If DependsOn is
// nil, a receive depends on its source, and a receive from Any depends on every peer.
func (e *Engine) dependsOn(r *Request, lost int) bool {
	if e.DependsOn != nil {
		return e.DependsOn(r.Context, r.Peer, lost)
	}
	return r.Peer == Any || r.Peer == lost
}

// FailContext fails all posted and future receives in a context, and the sends that wait for an RTR.
func (e *Engine) FailContext(context uint32, cause error) {
	if e.failedContexts[context] != nil {
		return
	}
	e.failedContexts[context] = cause
	e.failAwaiting(context, cause)
	for _, r := range e.requests.all() {
		if r.isRecv && r.state == statePosted && r.Context == context {
			e.cancelRecv(r, cause)
		}
	}
}

// cancelRecv fails a posted receive whose peer may be alive. If an RTR is outstanding, it
// is revoked first, because the peer may be writing to the buffer.
func (e *Engine) cancelRecv(r *Request, err error) {
	if !r.sentRTR {
		e.fail(r, err)
		return
	}
	r.cancelErr = err
	e.Cancel(r)
}

// recvError returns why no message can arrive for a receive; nil if one can.
func (e *Engine) recvError(r *Request) error {
	if err := e.failedContexts[r.Context]; err != nil {
		return err
	}
	for _, peer := range e.lostOrder {
		if e.dependsOn(r, peer) {
			return e.lost[peer]
		}
	}
	return nil
}

// Busy reports whether any request is pending.
func (e *Engine) Busy() bool { return len(e.requests.free) < len(e.requests.slots) }

// UnexpectedLen is the number of unexpected messages.
func (e *Engine) UnexpectedLen() int { return e.unexpected.Len() }

// CancelAll cancels all receives that have not matched.
func (e *Engine) CancelAll() {
	for _, r := range e.requests.all() {
		e.Cancel(r)
	}
}

// ProbeError returns why no message can match a probe; nil if one can.
func (e *Engine) ProbeError(envelope Envelope) error {
	return e.recvError(&Request{Context: envelope.Context, Peer: int(envelope.Source)})
}

// EachAwaitedPeer calls visit for the peer that each pending request waits for, unless that is Any.
// For a posted receive it also calls postedRecv, whose source may be Any.
func (e *Engine) EachAwaitedPeer(visit func(peer int), postedRecv func(context uint32, source int)) {
	for _, r := range e.requests.all() {
		switch {
		case r.isRecv && r.state == statePosted:
			if r.Peer != Any {
				visit(r.Peer)
			}
			postedRecv(r.Context, r.Peer)
		case r.isRecv:
			visit(r.Source)
		default:
			visit(r.Peer)
		}
	}
}
