package p2p

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Mode is when a send is complete.
type Mode uint8

// The modes. Buffered sends are standard ones, from a buffer that is not the user's.
const (
	Standard Mode = iota
	Synchronous
	Ready
)

// Request is a send or a receive. Its first fields are the caller's to fill in, and
// its to read once Done; the rest is the engine's. It may be used again when it is
// done.
type Request struct {
	Peer    int // match.Any in receives from anybody
	Context uint32
	Tag     int32 // match.Any in receives of any tag
	Buf     []byte
	Mode    Mode // of a send
	// Hurried says that whoever sends waits for this alone: for its buffer, that is, if
	// the message is eager. A copy is quicker than an acknowledgement.
	Blocking bool

	// Of a request that is done:
	Err        error
	Source     int // whom a receive was served by
	MatchedTag int32
	Size       int // of the message, of which the buffer may have had room for a part
	Cancelled  bool

	node     match.Node[*Request]
	name     uint32 // 0 if it is done
	state    state
	receives bool
	speaks   bool  // a receive has sent an RTR
	revoking bool  // it is being cancelled, and its RTR with it
	heard    bool  // a send whose receive has been heard of, by RTR or RTSAck
	stops    bool  // a send whose RTS has stopped RTRs
	acked    bool  // a synchronous send whose SyncAck came while it was leaving
	doomed   error // what a receive that is being cancelled ends with
	carried  bool  // the fabric reads or writes its buffer, and will say when it has ended
	failing  error // what it ends with then
	region   Region
	since    time.Duration
	follows  *Request // the next send of the envelope that no receive has been heard of for
	asker    uint32   // the sender's name for what a receive reads
}

type state uint8

const (
	idle    state = iota
	posted        // a receive that no message has come for
	offered       // a send whose RTS is out
	moving        // data is on its way
	synced        // an eager send that waits for its receive
	leaving       // an eager send whose data is not ours again yet
	done
)

// Hurries reports whether its sender waits for nothing but its buffer.
func (r *Request) IsBlocking() bool { return r.Blocking }

// Done reports whether a request is.
func (r *Request) Done() bool { return r.state == done }

// Matched reports whether a receive has met its message, done or not.
func (r *Request) Matched() bool { return r.state == moving || r.state == done }

// begin makes a request as new.
func (r *Request) begin() {
	*r = Request{Peer: r.Peer, Context: r.Context, Tag: r.Tag, Buf: r.Buf, Mode: r.Mode, Blocking: r.Blocking}
}

// finish ends a request.
func (e *Engine) finish(r *Request) {
	if r.region != nil {
		e.fabric.Release(r.region)
		r.region = nil
	}
	e.names.drop(r)
	r.state = done
}

// fail ends a request with an error. If the fabric has its buffer it ends later, for its
// caller may use the buffer and the request again as soon as it is done.
func (e *Engine) fail(r *Request, err error) {
	if r.node.Queued() {
		e.posted.Remove(&r.node)
	}
	if r.carried {
		r.failing = err
		return
	}
	r.Err = err
	e.finish(r)
}

// returned takes back a request's buffer from the fabric. It reports whether the request
// failed meanwhile, and has ended now.
func (e *Engine) returned(r *Request) (failed bool) {
	r.carried = false
	if r.failing != nil {
		e.fail(r, r.failing)
	}
	return r.failing != nil
}

// register makes a request's buffer reachable, as far as n bytes.
func (e *Engine) register(r *Request, n int) (err error) {
	if r.region == nil && n > 0 {
		r.region, err = e.fabric.Register(r.Buf[:n])
	}
	return err
}

// word sends one without data.
func (e *Engine) word(peer int, h *wire.Header) {
	if e.lost[peer] != nil {
		return
	}
	e.Stats.Words[h.Kind]++
	e.out = *h
	e.fabric.Send(peer, &e.out, nil, nil)
}

// table gives requests names that peers know them by: a place, and how often it was
// used, so that a late word is for nobody rather than for somebody else.
type table struct {
	slots []*Request
	turns []uint16
	free  []uint32
}

const (
	slotBits = 20
	maxSlots = 1 << slotBits
	maxTurns = 1 << (32 - slotBits)
)

// add names a request. There are a million names, and a program that needs more has
// lost its way.
func (t *table) add(r *Request) {
	if len(t.free) == 0 {
		if len(t.slots) == maxSlots {
			panic(fmt.Sprintf("p2p: %d requests are under way at once", maxSlots))
		}
		t.slots, t.turns = append(t.slots, nil), append(t.turns, 0)
		t.free = append(t.free, uint32(len(t.slots)-1))
	}
	last := len(t.free) - 1
	slot := t.free[last]
	t.free = t.free[:last]
	t.turns[slot] = t.turns[slot]%(maxTurns-1) + 1 // never 0: no name is
	t.slots[slot] = r
	r.name = uint32(t.turns[slot])<<slotBits | slot
}

// get returns the request of a name, nil if it has ended.
func (t *table) get(name uint32) *Request {
	slot := name % maxSlots
	if int(slot) < len(t.slots) && t.slots[slot] != nil && t.slots[slot].name == name {
		return t.slots[slot]
	}
	return nil
}

func (t *table) drop(r *Request) {
	if r.name == 0 {
		return
	}
	slot := r.name % maxSlots
	t.slots[slot] = nil
	t.free = append(t.free, slot)
	r.name = 0
}

func (t *table) all() (all []*Request) {
	for _, r := range t.slots {
		if r != nil {
			all = append(all, r)
		}
	}
	return all
}
