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

	cfg        Config
	fabric     Transport
	posted     match.Posted[*Request]
	unexpected match.Unexpected[*arrival]
	names      table
	speculated map[match.Envelope]*speculation // of envelopes that we send; Source is the receiver
	forgetAt   int                             // how many are too many
	forgotten  bool                            // some of them were dropped
	hushed     map[match.Envelope]*hush        // of envelopes that we receive
	lost       map[int]error
	losses     []int            // whom lost has, the first first
	broken     map[uint32]error // contexts
	idle       []*arrival
	out        wire.Header // of what is being sent: one of its own would not stay on the stack

	maxEnvelopes int
}

// New returns an engine.
func New(cfg Config, f Transport) *Engine {
	cfg.setDefaults()
	return &Engine{
		cfg: cfg, fabric: f, lost: make(map[int]error), broken: make(map[uint32]error),
		speculated: make(map[match.Envelope]*speculation), hushed: make(map[match.Envelope]*hush),
		maxEnvelopes: maxEnvelopes, forgetAt: maxEnvelopes,
	}
}

// arrival is a message that nobody has asked for yet.
type arrival struct {
	match.Node[*arrival]
	peer   int
	header wire.Header
	data   []byte // of an eager one
	heard  bool   // its sender knows that no RTR is to be expected for it
}

// expectLater keeps an arrival until somebody asks for it.
func (e *Engine) expectLater(peer int, h *wire.Header, data []byte) {
	var a *arrival
	if n := len(e.idle); n > 0 {
		a, e.idle = e.idle[n-1], e.idle[:n-1]
	} else {
		a = new(arrival)
		a.Value = a
	}
	a.Envelope = match.Envelope{Context: h.Context, Source: int32(peer), Tag: h.Tag}
	a.peer, a.header, a.heard = peer, *h, false
	a.data = append(a.data[:0], data...)
	e.unexpected.Add(&a.Node)
	e.Stats.Unexpected++
	e.Stats.UnexpectedBytes += uint64(len(data))
	e.Stats.MaxUnexpected = max(e.Stats.MaxUnexpected, e.unexpected.Len())
}

// forget has an arrival that is out used by another.
func (e *Engine) forget(a *arrival) {
	const worthKeeping = 64
	if len(e.idle) < worthKeeping {
		e.idle = append(e.idle, a)
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
		return e.eagerCame(peer, h, data)
	case wire.RTS:
		return e.rtsCame(peer, h)
	case wire.RTR:
		return e.rtrCame(peer, h)
	case wire.RTRAck:
		return e.rtrAckCame(peer, h)
	case wire.SyncAck, wire.CTS, wire.RTSAck:
		return e.answered(peer, h)
	case wire.Done:
		return e.doneCame(peer, h)
	case wire.Revoke:
		return e.revokeCame(peer, h)
	case wire.Revoked:
		return e.revokedCame(peer, h)
	}
	return confused(peer, h, "it is of no kind")
}

func confused(peer int, h *wire.Header, why string) error {
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
	e.losses = append(e.losses, peer)
	for _, r := range e.names.all() {
		switch {
		case r.Peer == peer || r.receives && r.state == moving && r.Source == peer:
			e.fail(r, err)
		case r.receives && r.state == posted && e.concerns(r, peer):
			e.giveUp(r, err)
		}
	}
	maps.DeleteFunc(e.speculated, func(k match.Envelope, _ *speculation) bool { return int(k.Source) == peer })
}

// concerns reports whether a receive that waits is in vain without a peer.
func (e *Engine) concerns(r *Request, lost int) bool {
	if e.DependsOn != nil {
		return e.DependsOn(r.Context, r.Peer, lost)
	}
	return r.Peer == match.Any || r.Peer == lost
}

// Break ends all receives that wait in a context, and those that are to come: what
// they are part of has failed.
func (e *Engine) FailContext(context uint32, cause error) {
	if e.broken[context] != nil {
		return
	}
	e.broken[context] = cause
	for _, r := range e.names.all() {
		if r.receives && r.state == posted && r.Context == context {
			e.giveUp(r, cause)
		}
	}
}

// giveUp ends a receive that waits, though its peer may be there. If that was told
// where to write, it is asked not to first; it may have done so.
func (e *Engine) giveUp(r *Request, err error) {
	if !r.speaks {
		e.fail(r, err)
		return
	}
	r.doomed = err
	e.Cancel(r)
}

// unserved says why nobody can serve a receive any more.
func (e *Engine) unserved(r *Request) error {
	if err := e.broken[r.Context]; err != nil {
		return err
	}
	for _, peer := range e.losses {
		if e.concerns(r, peer) {
			return e.lost[peer]
		}
	}
	return nil
}

// Busy reports whether any request is under way.
func (e *Engine) Busy() bool { return len(e.names.free) < len(e.names.slots) }

// Unexpected is how many messages nobody has asked for.
func (e *Engine) UnexpectedLen() int { return e.unexpected.Len() }

// CancelAll cancels all receives that no message has come for.
func (e *Engine) CancelAll() {
	for _, r := range e.names.all() {
		e.Cancel(r)
	}
}

// InVain says why nobody can send what a probe with this envelope waits for; nil if
// somebody can.
func (e *Engine) ProbeError(envelope match.Envelope) error {
	return e.unserved(&Request{Context: envelope.Context, Peer: int(envelope.Source)})
}
