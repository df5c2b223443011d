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
type Fabric interface {
	// Now is the time.
	Now() time.Duration
	// Room reports whether an eager message with so many bytes can leave for a peer
	// without having to wait for room there.
	Room(peer, n int) bool
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
	ErrConfused = errors.New("peer does not keep to the protocol")
)

// Engine is a rank's. It belongs to one goroutine.
type Engine struct {
	// Stats counts what it did.
	Stats Stats

	cfg        Config
	fabric     Fabric
	posted     match.Posted[*Request]
	unexpected match.Unexpected[*arrival]
	names      table
	speculated map[match.Envelope]*speculation // of envelopes that we send; Source is the receiver
	forgotten  bool                            // some of them were dropped
	hushed     map[match.Envelope]*hush        // of envelopes that we receive
	lost       map[int]error
	firstLost  error // of any peer
	idle       []*arrival
}

// New returns an engine.
func New(cfg Config, f Fabric) *Engine {
	cfg.setDefaults()
	return &Engine{
		cfg: cfg, fabric: f, lost: make(map[int]error),
		speculated: make(map[match.Envelope]*speculation), hushed: make(map[match.Envelope]*hush),
	}
}

// arrival is a message that nobody has asked for yet.
type arrival struct {
	match.Node[*arrival]
	peer   int
	header wire.Header
	data   []byte // of an eager one
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
	a.peer, a.header = peer, *h
	a.data = append(a.data[:0], data...)
	e.unexpected.Add(&a.Node)
	e.Stats.Unexpected++
	e.Stats.UnexpectedBytes += uint64(len(data))
	e.Stats.MaxUnexpected = max(e.Stats.MaxUnexpected, e.unexpected.Len())
}

// forget takes an arrival out, for use by another.
func (e *Engine) forget(a *arrival) {
	e.unexpected.Remove(&a.Node)
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
	return fmt.Errorf("rank %d: %v: %w: %s", peer, h.Kind, ErrConfused, why)
}

// Lost ends everything that needs a peer: requests to it, those from it, and those
// from anybody, which might have been from it. It stays lost.
func (e *Engine) Lost(peer int, cause error) {
	if e.lost[peer] != nil {
		return
	}
	err := fmt.Errorf("rank %d: %w: %w", peer, ErrLost, cause)
	e.lost[peer] = err
	if e.firstLost == nil {
		e.firstLost = err
	}
	for _, r := range e.names.all() {
		if r.Peer == peer || r.Peer == match.Any && r.state == posted {
			e.fail(r, err)
		}
	}
	maps.DeleteFunc(e.speculated, func(k match.Envelope, _ *speculation) bool { return int(k.Source) == peer })
}
