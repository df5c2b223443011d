package p2p

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Protocol is a way to carry large messages.
type Protocol uint8

// The protocols.
const (
	RGET Protocol = iota
	RPUT
	Speculative
)

func (p Protocol) String() string { return [...]string{"rget", "rput", "speculative"}[p] }

// Config is how an engine behaves. The zero Config sends everything by RGET.
type Config struct {
	Protocol Protocol
	// EagerLimit is the size of the largest message that goes eagerly.
	EagerLimit int
	// NoEarlyProgress leaves out the look at what has come with which calls of the
	// speculative protocol begin.
	NoEarlyProgress bool
	// Adaptive stops RTRs for envelopes where too few of them are used, and
	// resumes them when enough would be.
	Adaptive bool
	// Usage is the share of RTRs that must be used; 0.8 if 0.
	Usage float64
	// Sample is over how many RTRs that is judged; 16 if 0.
	Sample int
	// MaxMispredicted is how many receives in a row of an envelope may have sent an
	// RTR for what came eagerly, before no more are sent until something comes by
	// rendezvous; 4 if 0.
	MaxMispredicted int
}

func (c *Config) setDefaults() {
	if c.Usage == 0 {
		c.Usage = 0.8
	}
	if c.Sample == 0 {
		c.Sample = 16
	}
	if c.MaxMispredicted == 0 {
		c.MaxMispredicted = 4
	}
}

// Region is memory that the NICs can reach.
type Region interface {
	Memory() wire.Memory
}

// Fabric is what carries the words of an engine and moves its data. What it is
// asked for it does in time; when it cannot, Engine.Lost says so of the peer.
type Transport interface {
	// Now is the time.
	Now() time.Duration
	// Room reports whether an eager message with so many bytes can leave for a peer
	// without having to wait for room there.
	CanSend(peer, n int) bool
	// Send carries a word to a peer, behind those before it. The header is the
	// caller's again at once; data, which only eager messages have, when
	// Engine.Sent says so of the owner, which may be before Send returns. Without
	// data the owner is nil.
	Send(peer int, h *wire.Header, data []byte, owner *Request)
	// Register makes memory reachable; Release says that it need not be any more.
	Register(buf []byte) (Region, error)
	Release(Region)
	// Read brings n bytes of a peer's memory; Engine.Read follows.
	Read(peer int, into Region, n int, from wire.Memory, owner *Request)
	// Write takes n bytes to a peer's memory, then sends a word that arrives when
	// they are there; Engine.Wrote follows.
	Write(peer int, from Region, n int, to wire.Memory, then *wire.Header, owner *Request)
	// Progress takes in what has come.
	Progress()
}

// Errors that requests end with.
var (
	ErrTruncated = errors.New("message is longer than the receive")
	ErrLost      = errors.New("peer is lost")
	// ErrConfused is a peer that says what no engine says.
	ErrProtocol = errors.New("peer does not keep to the protocol")
)

// Engine is a rank's. It belongs to one goroutine.
type Engine struct {
	// Stats counts what it did.
	Stats Stats
	// Concerns reports whether a receive in a context, from a rank or from match.Any,
	// is in vain when another rank is lost. Without it, those from the rank are and
	// those from anybody, whatever their context.
	DependsOn func(context uint32, from, lost int) bool

	cfg            Config
	transport      Transport
	posted         match.Posted[*Request]
	unexpected     match.Unexpected[*unexpectedMessage]
	requests       requestTable
	senders        map[match.Envelope]*senderState   // of envelopes that we send; Source is the receiver
	evictAt        int                               // how many are too many
	evicted        bool                              // some of them were dropped
	receivers      map[match.Envelope]*receiverState // of envelopes that we receive
	lost           map[int]error
	lostOrder      []int            // whom lost has, the first first
	failedContexts map[uint32]error // contexts
	freeArrivals   []*unexpectedMessage
	sendHeader     wire.Header // of what is being sent: one of its own would not stay on the stack

	maxEnvelopes int
}

// New returns an engine.
func New(cfg Config, f Transport) *Engine {
	cfg.setDefaults()
	return &Engine{
		cfg: cfg, transport: f, lost: make(map[int]error), failedContexts: make(map[uint32]error),
		senders: make(map[match.Envelope]*senderState), receivers: make(map[match.Envelope]*receiverState),
		maxEnvelopes: maxEnvelopes, evictAt: maxEnvelopes,
	}
}

// arrival is a message that nobody has asked for yet.
type unexpectedMessage struct {
	match.Node[*unexpectedMessage]
	peer      int
	header    wire.Header
	data      []byte // of an eager one
	recvKnown bool   // its sender knows that no RTR is to be expected for it
}

// expectLater keeps an arrival until somebody asks for it.
func (e *Engine) addUnexpected(peer int, h *wire.Header, data []byte) {
	var a *unexpectedMessage
	if n := len(e.freeArrivals); n > 0 {
		a, e.freeArrivals = e.freeArrivals[n-1], e.freeArrivals[:n-1]
	} else {
		a = new(unexpectedMessage)
		a.Value = a
	}
	a.Envelope = match.Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag}
	a.peer, a.header, a.recvKnown = peer, *h, false
	a.data = append(a.data[:0], data...)
	e.unexpected.Add(&a.Node)
	e.Stats.Unexpected++
	e.Stats.UnexpectedBytes += uint64(len(data))
	e.Stats.MaxUnexpected = max(e.Stats.MaxUnexpected, e.unexpected.Len())
}

// forget has an arrival that is out used by another.
func (e *Engine) freeUnexpected(a *unexpectedMessage) {
	const worthKeeping = 64
	if len(e.freeArrivals) < worthKeeping {
		e.freeArrivals = append(e.freeArrivals, a)
	}
}

// Arrived takes a word of a peer's. The data, of eager messages, is valid until it
// returns.
func (e *Engine) Arrived(peer int, h *wire.Header, data []byte) error {
	if e.lost[peer] != nil {
		return nil // what it said before it went is of no use without it
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
	return protocolError(peer, h, "it is of no kind")
}

func protocolError(peer int, h *wire.Header, why string) error {
	return fmt.Errorf("rank %d: %v: %w: %s", peer, h.Kind, ErrProtocol, why)
}

// Lost ends everything that needs a peer: requests to it, those from it, and those
// from anybody, which might have been from it. It stays lost.
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
	maps.DeleteFunc(e.senders, func(k match.Envelope, _ *senderState) bool { return int(k.Source) == peer })
}

// concerns reports whether a receive that waits is in vain without a peer.
func (e *Engine) dependsOn(r *Request, lost int) bool {
	if e.DependsOn != nil {
		return e.DependsOn(r.Context, r.Peer, lost)
	}
	return r.Peer == match.Any || r.Peer == lost
}

// Break ends all receives that wait in a context, and those that are to come: what
// they are part of has failed.
func (e *Engine) FailContext(context uint32, cause error) {
	if e.failedContexts[context] != nil {
		return
	}
	e.failedContexts[context] = cause
	for _, r := range e.requests.all() {
		if r.isRecv && r.state == statePosted && r.Context == context {
			e.cancelRecv(r, cause)
		}
	}
}

// giveUp ends a receive that waits, though its peer may be there. If that was told
// where to write, it is asked not to first; it may have done so.
func (e *Engine) cancelRecv(r *Request, err error) {
	if !r.sentRTR {
		e.fail(r, err)
		return
	}
	r.cancelErr = err
	e.Cancel(r)
}

// unserved says why nobody can serve a receive any more.
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

// Busy reports whether any request is under way.
func (e *Engine) Busy() bool { return len(e.requests.free) < len(e.requests.slots) }

// Unexpected is how many messages nobody has asked for.
func (e *Engine) UnexpectedLen() int { return e.unexpected.Len() }

// CancelAll cancels all receives that no message has come for.
func (e *Engine) CancelAll() {
	for _, r := range e.requests.all() {
		e.Cancel(r)
	}
}

// InVain says why nobody can send what a probe with this envelope waits for; nil if
// somebody can.
func (e *Engine) ProbeError(envelope match.Envelope) error {
	return e.recvError(&Request{Context: envelope.Context, Peer: int(envelope.Source)})
}
