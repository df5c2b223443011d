package p2p

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Mode is the MPI send mode.
type Mode uint8

// The modes. Buffered sends are standard sends from a buffer of the runtime.
const (
	Standard Mode = iota
	Synchronous
	Ready
)

// Request is a send or a receive. The caller sets the exported fields and reads the Result
// once Done reports true. It may be reused after that.
type Request struct {
	Peer    int // Any: receive from any source
	Context uint32
	Tag     int32 // Any: receive any tag
	Buf     []byte
	Mode    Mode // of a send
	// Blocking says that the caller waits for this send only. The transport then copies
	// eager data, because that completes the send sooner than an acknowledgement.
	Blocking bool
	// Unbuffered says that an eager send over a connection is complete when the peer's NIC has the data, not when it
	// is copied.
	Unbuffered bool
	// Advertised says that the peer's request is known to follow, and has this flag too: a receive
	// tells the sender the address of its buffer, and a send waits for that.
	Advertised bool

	Result

	node      Node[*Request]
	id        uint32 // known to the peer; 0 when done
	state     state
	isRecv    bool
	startedAt time.Duration
	bufferUse
	sendFields
	recvFields
}

// Result is the result of a completed request.
type Result struct {
	Err        error
	Source     int // of the matched message
	MatchedTag int32
	Size       int // of the message; the buffer may be shorter
	Cancelled  bool
}

// bufferUse says how the transport uses the buffer of a request.
type bufferUse struct {
	region      wire.Region
	inTransport bool  // the transport uses the buffer
	deferredErr error // final error once the transport returns the buffer
}

// sendFields is the state of a send only.
type sendFields struct {
	recvKnown     bool     // an RTR or RTSAck of its receive has arrived
	sentStopRTR   bool     // its RTS had the flag StopRTR
	noRTSAck      bool     // its RTS had the flag NoRTSAck
	syncAcked     bool     // synchronous send: SyncAck arrived before SendDone
	nextUnmatched *Request // next send in senderState's list
}

// recvFields is the state of a receive only.
type recvFields struct {
	sentRTR     bool       // an RTR is outstanding
	revokingRTR bool       // being cancelled, waits for Revoked
	cancelErr   error      // being cancelled: its final error
	sendID      uint32     // the id of the sender's request
	doneFlags   wire.Flags // of the Done after the read
}

type state uint8

const (
	stateIdle         state = iota
	statePosted             // receive without a message
	stateAwaitingRTR        // advertised send
	stateRTSSent            // send that waits for the receiver
	stateTransferring       // data is being read or written
	stateAwaitSyncAck       // eager synchronous send that waits for its receive
	stateEagerSending       // eager send whose buffer the transport uses
	stateDone
)

// IsBlocking reports whether the caller waits for this send only.
func (r *Request) IsBlocking() bool { return r.Blocking }

// IsUnbuffered returns Unbuffered.
func (r *Request) IsUnbuffered() bool { return r.Unbuffered }

// Done reports whether the request is complete.
func (r *Request) Done() bool { return r.state == stateDone }

// reset clears all fields but the arguments and the node, whose links are clear unless it is queued.
// It writes no more than that, as requests are long and messages are short.
func (r *Request) reset() {
	r.Result, r.id, r.state, r.isRecv, r.startedAt = Result{}, 0, stateIdle, false, 0
	r.bufferUse, r.sendFields, r.recvFields = bufferUse{}, sendFields{}, recvFields{}
}

// finish completes a request: it releases the registration and the id.
func (e *Engine) finish(r *Request) {
	if r.region != nil {
		e.transport.Release(r.region)
		r.region = nil
	}
	e.requests.remove(r)
	r.state = stateDone
}

// fail completes a request with an error. If the transport uses the buffer, the request completes
// when the buffer is returned, because the caller may reuse the buffer of a completed request.
func (e *Engine) fail(r *Request, err error) {
	if r.node.Queued() {
		if r.isRecv {
			e.posted.Remove(&r.node)
		} else {
			e.awaiting.Remove(&r.node)
		}
	}
	if r.inTransport {
		r.deferredErr = err
		return
	}
	r.Err = err
	e.finish(r)
}

// finishIfFailed must be called when the transport no longer uses the buffer of a request. If the
// request failed meanwhile, finishIfFailed completes it and returns true.
func (e *Engine) finishIfFailed(r *Request) (failed bool) {
	r.inTransport = false
	if r.deferredErr != nil {
		e.fail(r, r.deferredErr)
	}
	return r.deferredErr != nil
}

// register registers the first n bytes of a request's buffer, unless it is registered already.
func (e *Engine) register(r *Request, n int) (err error) {
	if r.region == nil && n > 0 {
		r.region, err = e.transport.Register(r.Buf[:n])
	}
	return err
}

// sendControl sends a control message without data, unless the peer is lost.
func (e *Engine) sendControl(peer int, h *wire.Header) {
	if e.lost[peer] != nil {
		return
	}
	e.Stats.ControlMessages[h.Kind]++
	e.sendHeader = *h // passing h on would make every caller allocate its header
	e.transport.Send(peer, &e.sendHeader, nil, nil)
}

// requestTable assigns the ids by which peers name requests. An id has a slot and a
// generation, so that a late control message cannot name a newer request.
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

// add stores r in a free slot and sets its id, which consists of the slot and the generation of
// the slot. It panics when all slots are in use.
func (t *requestTable) add(r *Request) {
	if len(t.free) == 0 {
		if len(t.slots) == maxSlots {
			panic(fmt.Sprintf("p2p: more than %d pending requests", maxSlots))
		}
		t.slots, t.generations = append(t.slots, nil), append(t.generations, 0)
		t.free = append(t.free, uint32(len(t.slots)-1))
	}
	last := len(t.free) - 1
	slot := t.free[last]
	t.free = t.free[:last]
	t.generations[slot] = t.generations[slot]%(maxGenerations-1) + 1 // never 0
	t.slots[slot] = r
	r.id = uint32(t.generations[slot])<<slotBits | slot
}

// get returns the request with an id; nil if it has completed.
func (t *requestTable) get(id uint32) *Request {
	slot := id % maxSlots
	if int(slot) < len(t.slots) && t.slots[slot] != nil && t.slots[slot].id == id {
		return t.slots[slot]
	}
	return nil
}

// remove frees the slot of a request and clears its id.
func (t *requestTable) remove(r *Request) {
	if r.id == 0 {
		return
	}
	slot := r.id % maxSlots
	t.slots[slot] = nil
	t.free = append(t.free, slot)
	r.id = 0
}

// all returns the pending requests.
func (t *requestTable) all() (all []*Request) {
	for _, r := range t.slots {
		if r != nil {
			all = append(all, r)
		}
	}
	return all
}

// DescribePending lists the pending sends and receives with their peers, which are world ranks,
// and tags; "none" if there is none.
func (e *Engine) DescribePending() string {
	var all []string
	for _, r := range e.requests.all() {
		switch {
		case !r.isRecv:
			all = append(all, fmt.Sprintf("a send of %d bytes to rank %d with tag %d", len(r.Buf), r.Peer, r.Tag))
		case r.state == statePosted:
			text := fmt.Sprintf("a receive from rank %d with tag %d", r.Peer, r.Tag)
			// -1 is Any: real ranks and tags are not negative.
			all = append(all, strings.NewReplacer("rank -1", "any rank", "tag -1", "any tag").Replace(text))
		default:
			all = append(all, fmt.Sprintf("the data of a message from rank %d with tag %d", r.Source, r.MatchedTag))
		}
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}
