package interop

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// exchange is a running case. Its steps end it by [rig.Abort] when one fails.
type exchange struct {
	Case
	*objects
	op                   *operation
	requester, responder *queuePair
	pair                 *qpPair
	data                 []byte // Size bytes
	src, dst             *memory
	lossy                bool
}

const (
	immediate     = 0x01a2c3e4 // immediate data that differs in every byte order
	noExtraAccess = 0          // no access rights of memory beyond those of endpoint.access
)

// must ends the case by a panic, which rig.Catch recovers, if err is not nil.
func must(err error) {
	if err != nil {
		rig.Abort(err)
	}
}

// objects are objects on the devices that are closed when the steps that use them end.
type objects struct{ closers []func() error }

// withObjects runs steps, then closes the objects that steps has added to its argument, the last
// one first. It joins the error of steps and those of closing.
func withObjects(steps func(*objects)) error {
	var o objects
	err := rig.Catch(func() { steps(&o) })
	for _, c := range slices.Backward(o.closers) {
		err = errors.Join(err, c())
	}
	return err
}

// closeAtEnd closes an object of a queue pair when the steps of withObjects end.
func (o *objects) closeAtEnd(p *queuePair, name string, object io.Closer) {
	o.closers = append(o.closers, func() error { return p.verbError("close "+name, object.Close()) })
}

// memory registers an area of n octets between guard bytes, with all rights of p.access and those
// in extra. It is deregistered when the steps of withObjects end.
func (o *objects) memory(p *queuePair, n int, extra verbs.Access) *memory {
	initial := bytes.Repeat([]byte{poison}, guard+n+guard)
	m := &memory{endpoint: p.endpoint, buf: initial, want: bytes.Clone(initial)}
	m.mr = rig.Result(p.pd.RegMR(verbs.MRInit{Buf: m.buf, Access: p.access() | extra}))(p, fmt.Sprintf("register %d octets", len(m.buf)))
	o.closeAtEnd(p, "a region", m.mr)
	return m
}

// exchange runs case c, whose operation is op, on the pair, and checks that no other request
// completes. seed determines the data.
func (pair *qpPair) exchange(c Case, op *operation, seed uint64) error {
	return withObjects(func(o *objects) {
		x := &exchange{
			Case: c, objects: o, op: op, requester: pair.qps[c.By], responder: pair.qps[c.By.other()], pair: pair,
			data: pattern(seed, c.Size), lossy: pair.suite.Lossy,
		}
		dstAccess := verbs.Access(noExtraAccess)
		bindsWindow := op.responderNeeds&(verbs.CapMWType1|verbs.CapMWType2) != 0 || c.Op == "send-inv"
		if bindsWindow && x.responder.attr.Caps&(verbs.CapMWType1|verbs.CapMWType2) != 0 {
			dstAccess = verbs.AccessMWBind // to bind windows to the memory; devices without windows refuse it
		}
		length := max(c.Size, 1) // some devices refuse a receive without memory
		if op.service == verbs.QPTypeUD {
			length += verbs.GRHLen
		}
		x.src, x.dst = x.memory(x.requester, length, noExtraAccess), x.memory(x.responder, length, dstAccess)
		err := rig.Catch(func() {
			op.run(x)
			must(errors.Join(x.requester.checkNoCompletions(), x.responder.checkNoCompletions()))
		})
		if err != nil { // add the unexpected completions of both sides to the error
			for _, side := range []Side{Ours, Theirs} {
				if also := pair.qps[side].checkNoCompletions(); also != nil && also.Error() != err.Error() {
					err = fmt.Errorf("%w\n%w", err, also)
				}
			}
		}
		must(err)
	})
}

// request returns a work request whose data is in src, or inline if the operation uses inline data.
func (x *exchange) request(op verbs.WROpcode) verbs.SendWR {
	wr := verbs.SendWR{WRID: x.requester.nextWRID(), Opcode: op, SGL: x.src.sge(0, x.Size)}
	if x.op.inline > 0 {
		wr.SGL, wr.Inline, wr.Flags = nil, x.data, verbs.SendInline
	}
	return wr
}

// fillSourceAndExpect writes the data to src, and makes checkMemory expect it in src and in dst.
func (x *exchange) fillSourceAndExpect() {
	x.src.write(x.data)
	x.dst.setWant(0, x.data)
}

// checkMemory ends the case unless x.src, x.dst and the regions in more have the content that was
// set by write and setWant.
func (x *exchange) checkMemory(more ...*memory) {
	errs := []error{x.requester.syncMemory(), x.responder.syncMemory()}
	for _, m := range append([]*memory{x.src, x.dst}, more...) {
		errs = append(errs, m.check())
	}
	must(errors.Join(errs...))
}

// transfer posts a receive into recvSGL and a request, and waits for both completions; that of the
// receive must be want. On a lossy link it repeats a request of UC or UD, up to unreliableTries
// times, until the message arrives.
func (x *exchange) transfer(op verbs.WROpcode, recvSGL []verbs.SGE, want recvCompletion) {
	wrID := x.responder.postRecv(recvSGL)
	attempt := func(timeout time.Duration) error {
		return rig.Catch(func() {
			wr := x.request(op)
			wr.Remote, wr.Imm = x.dst.remote(), want.imm
			x.requester.post(wr)
			x.requester.expectSent(wr)
			x.responder.expectRecv(wrID, want, timeout)
		})
	}
	if !x.lossy || x.op.service == verbs.QPTypeRC {
		must(attempt(x.responder.timeout))
		return
	}
	var err error
	for range unreliableTries {
		if err = attempt(unreliableTimeout); !errors.Is(err, ErrNoCompletion) {
			break
		}
	}
	must(err)
}

// Number of attempts and time per attempt for unacknowledged messages on a lossy link. A
// message of sixteen packets passes a loss of 5 % in more than one of three attempts.
const (
	unreliableTries   = 40
	unreliableTimeout = 300 * time.Millisecond
)

// send sends a message to a receive of the whole destination, and checks completions and memory.
func send(x *exchange) {
	x.fillSourceAndExpect()
	x.transfer(verbs.OpSend, x.dst.sge(0, len(x.dst.area())), recvCompletion{op: verbs.WCOpRecv, size: x.Size})
	x.checkMemory()
}

// sendImm sends a message with immediate data.
func sendImm(x *exchange) {
	x.fillSourceAndExpect()
	want := recvCompletion{op: verbs.WCOpRecv, size: x.Size, flags: verbs.WCWithImm, imm: immediate}
	x.transfer(verbs.OpSendImm, x.dst.sge(0, len(x.dst.area())), want)
	x.checkMemory()
}

// inFlight is the number of concurrent requests of the "many" operations.
const inFlight = 32

// sendMany has both sides send inFlight messages to each other concurrently.
func sendMany(x *exchange) {
	type flight struct {
		from, to *queuePair
		src, dst *memory
		sends    []verbs.SendWR
		recvs    []uint64 // WR IDs
	}
	flights := []*flight{{from: x.requester, to: x.responder}, {from: x.responder, to: x.requester}}
	for i, f := range flights {
		f.src, f.dst = x.memory(f.from, inFlight*x.Size, noExtraAccess), x.memory(f.to, inFlight*x.Size, noExtraAccess)
		data := pattern(uint64(x.Size+i), inFlight*x.Size)
		f.src.write(data)
		f.dst.setWant(0, data)
		for k := range inFlight {
			f.recvs = append(f.recvs, f.to.postRecv(f.dst.sge(k*x.Size, x.Size)))
		}
	}
	for _, f := range flights {
		for k := range inFlight {
			f.sends = append(f.sends, verbs.SendWR{WRID: f.from.nextWRID(), Opcode: verbs.OpSend, SGL: f.src.sge(k*x.Size, x.Size)})
		}
		f.from.post(f.sends...)
	}
	for _, f := range flights {
		for k := range inFlight {
			f.to.expectRecv(f.recvs[k], recvCompletion{op: verbs.WCOpRecv, size: x.Size}, f.to.timeout)
			f.from.expectSent(f.sends[k])
		}
	}
	x.checkMemory(flights[0].src, flights[0].dst, flights[1].src, flights[1].dst)
}
