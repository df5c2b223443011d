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

	node          match.Node[*Request]
	id            uint32 // 0 if it is done
	state         state
	isRecv        bool
	sentRTR       bool  // a receive has sent an RTR
	revokingRTR   bool  // it is being cancelled, and its RTR with it
	recvKnown     bool  // a send whose receive has been heard of, by RTR or RTSAck
	sentStopRTR   bool  // a send whose RTS has stopped RTRs
	syncAcked     bool  // a synchronous send whose SyncAck came while it was leaving
	cancelErr     error // what a receive that is being cancelled ends with
	inTransport   bool  // the fabric reads or writes its buffer, and will say when it has ended
	deferredErr   error // what it ends with then
	region        Region
	startedAt     time.Duration
	nextUnmatched *Request // the next send of the envelope that no receive has been heard of for
	sendID        uint32   // the sender's name for what a receive reads
}

type state uint8

const (
	stateIdle         state = iota
	statePosted             // a receive that no message has come for
	stateRTSSent            // a send whose RTS is out
	stateTransferring       // data is on its way
	stateAwaitSyncAck       // an eager send that waits for its receive
	stateEagerSending       // an eager send whose data is not ours again yet
	stateDone
)

// Hurries reports whether its sender waits for nothing but its buffer.
func (r *Request) IsBlocking() bool { return r.Blocking }

// Done reports whether a request is.
func (r *Request) Done() bool { return r.state == stateDone }

// Matched reports whether a receive has met its message, done or not.
func (r *Request) Matched() bool { return r.state == stateTransferring || r.state == stateDone }

// begin makes a request as new.
func (r *Request) reset() {
	*r = Request{Peer: r.Peer, Context: r.Context, Tag: r.Tag, Buf: r.Buf, Mode: r.Mode, Blocking: r.Blocking}
}

// finish ends a request.
func (e *Engine) finish(r *Request) {
	if r.region != nil {
		e.transport.Release(r.region)
		r.region = nil
	}
	e.requests.remove(r)
	r.state = stateDone
}

// fail ends a request with an error. If the fabric has its buffer it ends later, for its
// caller may use the buffer and the request again as soon as it is done.
func (e *Engine) fail(r *Request, err error) {
	if r.node.Queued() {
		e.posted.Remove(&r.node)
	}
	if r.inTransport {
		r.deferredErr = err
		return
	}
	r.Err = err
	e.finish(r)
}

// returned takes back a request's buffer from the fabric. It reports whether the request
// failed meanwhile, and has ended now.
func (e *Engine) bufferReturned(r *Request) (failed bool) {
	r.inTransport = false
	if r.deferredErr != nil {
		e.fail(r, r.deferredErr)
	}
	return r.deferredErr != nil
}

// register makes a request's buffer reachable, as far as n bytes.
func (e *Engine) register(r *Request, n int) (err error) {
	if r.region == nil && n > 0 {
		r.region, err = e.transport.Register(r.Buf[:n])
	}
	return err
}

// word sends one without data.
func (e *Engine) sendControl(peer int, h *wire.Header) {
	if e.lost[peer] != nil {
		return
	}
	e.Stats.Words[h.Kind]++
	e.sendHeader = *h
	e.transport.Send(peer, &e.sendHeader, nil, nil)
}

// table gives requests names that peers know them by: a place, and how often it was
// used, so that a late word is for nobody rather than for somebody else.
type requestTable struct {
	slots       []*Request
	generations []uint16
	free        []uint32
}

const (
	slotBits       = 20
	maxSlots       = 1 << slotBits
	maxGenerations = 1 << (32 - slotBits)
)

// add names a request. There are a million names, and a program that needs more has
// lost its way.
func (t *requestTable) add(r *Request) {
	if len(t.free) == 0 {
		if len(t.slots) == maxSlots {
			panic(fmt.Sprintf("p2p: %d requests are under way at once", maxSlots))
		}
		t.slots, t.generations = append(t.slots, nil), append(t.generations, 0)
		t.free = append(t.free, uint32(len(t.slots)-1))
	}
	last := len(t.free) - 1
	slot := t.free[last]
	t.free = t.free[:last]
	t.generations[slot] = t.generations[slot]%(maxGenerations-1) + 1 // never 0: no name is
	t.slots[slot] = r
	r.id = uint32(t.generations[slot])<<slotBits | slot
}

// get returns the request of a name, nil if it has ended.
func (t *requestTable) get(name uint32) *Request {
	slot := name % maxSlots
	if int(slot) < len(t.slots) && t.slots[slot] != nil && t.slots[slot].id == name {
		return t.slots[slot]
	}
	return nil
}

func (t *requestTable) remove(r *Request) {
	if r.id == 0 {
		return
	}
	slot := r.id % maxSlots
	t.slots[slot] = nil
	t.free = append(t.free, slot)
	r.id = 0
}

func (t *requestTable) all() (all []*Request) {
	for _, r := range t.slots {
		if r != nil {
			all = append(all, r)
		}
	}
	return all
}
