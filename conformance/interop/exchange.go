package interop

import (
	"errors"
	"fmt"
	"slices"

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

// immediate is immediate data that differs in every byte order.
const immediate = 0x01a2c3e4

// check ends the case if err is not nil.
func check(err error) {
	if err != nil {
		rig.Abort(err)
	}
}

// objects are objects on the devices that are closed when the steps that use them end.
type objects struct{ closers []func() error }

// withObjects runs steps, closes their objects, and returns the errors of both.
func withObjects(steps func(*objects)) error {
	var o objects
	err := rig.Catch(func() { steps(&o) })
	for _, c := range slices.Backward(o.closers) {
		err = errors.Join(err, c())
	}
	return err
}

// memory registers n octets on the device of a queue pair, with more access rights than usual.
func (o *objects) memory(p *queuePair, n int, more verbs.Access) *memory {
	m, err := p.memory(p.pd, n, more)
	check(err)
	o.closers = append(o.closers, m.close)
	return m
}

// exchange runs a case on a pair.
func (l *qpPair) exchange(c Case, op *operation, seed uint64) error {
	return withObjects(func(o *objects) {
		x := &exchange{
			Case: c, objects: o, op: op, requester: l.qps[c.By], responder: l.qps[c.By.other()], pair: l,
			data: pattern(seed, c.Size), lossy: l.suite.Lossy,
		}
		more := verbs.Access(0)
		windows := op.serves&(verbs.CapMWType1|verbs.CapMWType2) != 0 || c.Op == "send-inv"
		if windows && x.responder.attr.Caps.Has(verbs.CapMWType1) {
			more = verbs.AccessMWBind
		}
		room := max(c.Size, 1) // some devices refuse a receive without memory
		if op.service == verbs.QPTypeUD {
			room += verbs.GRHLen
		}
		x.src, x.dst = x.memory(x.requester, room, 0), x.memory(x.responder, room, more)
		err := rig.Catch(func() {
			op.run(x)
			check(errors.Join(x.requester.checkNoCompletions(), x.responder.checkNoCompletions()))
		})
		if err != nil {
			check(l.addUnexpected(err))
		}
	})
}

// addUnexpected adds unexpected completions of both sides to an error.
func (l *qpPair) addUnexpected(err error) error {
	for _, side := range []Side{Ours, Theirs} {
		if also := l.qps[side].checkNoCompletions(); also != nil && also.Error() != err.Error() {
			err = fmt.Errorf("%w\n%w", err, also)
		}
	}
	return err
}

// request returns a work request with the data, inline if the operation says so.
func (x *exchange) request(op verbs.WROpcode) verbs.SendWR {
	wr := verbs.SendWR{WRID: x.requester.nextWRID(), Opcode: op, SGL: x.src.sge(0, x.Size)}
	if x.op.inline > 0 {
		wr.SGL, wr.Inline, wr.Flags = nil, x.data, verbs.SendInline
	}
	return wr
}

// writeSource writes the data to the requester's memory. checkMemory expects it at the responder too.
func (x *exchange) writeSource() {
	x.src.write(0, x.data)
	x.dst.setWant(0, x.data)
}

// checkMemory ends the case unless the memory of both sides, and more memory, has the content that was set
// by write and setWant.
func (x *exchange) checkMemory(more ...*memory) {
	errs := []error{x.requester.sync(), x.responder.sync()}
	for _, m := range append([]*memory{x.src, x.dst}, more...) {
		errs = append(errs, m.check())
	}
	check(errors.Join(errs...))
}

// sendMessage sends a message and checks its completions and the memory.
func (x *exchange) sendMessage(wr verbs.SendWR, want recvCompletion) {
	x.writeSource()
	wrID := x.responder.postRecv(x.dst.sge(0, len(x.dst.area())))
	x.requester.post(wr)
	want.op, want.size = verbs.WCOpRecv, x.Size
	x.responder.expectRecv(wrID, want, x.responder.timeout)
	x.requester.expectSent(wr)
	x.checkMemory()
}

// send sends a message.
func send(x *exchange) { x.sendMessage(x.request(verbs.OpSend), recvCompletion{}) }

// sendImm sends a message with immediate data.
func sendImm(x *exchange) {
	wr := x.request(verbs.OpSendImm)
	wr.Imm = immediate
	x.sendMessage(wr, recvCompletion{flags: verbs.WCWithImm, imm: immediate})
}

// inFlight is the wrID of concurrent requests of the "many" operations.
const inFlight = 32

// sendMany has both sides send inFlight messages to each other concurrently.
func sendMany(x *exchange) {
	type flight struct {
		from, to *queuePair
		src, dst *memory
		sent     []verbs.SendWR
		got      []uint64
	}
	flights := []*flight{{from: x.requester, to: x.responder}, {from: x.responder, to: x.requester}}
	for i, f := range flights {
		f.src, f.dst = x.memory(f.from, inFlight*x.Size, 0), x.memory(f.to, inFlight*x.Size, 0)
		data := pattern(uint64(x.Size+i), inFlight*x.Size)
		f.src.write(0, data)
		f.dst.setWant(0, data)
		for k := range inFlight {
			f.got = append(f.got, f.to.postRecv(f.dst.sge(k*x.Size, x.Size)))
		}
	}
	for _, f := range flights {
		for k := range inFlight {
			f.sent = append(f.sent, verbs.SendWR{WRID: f.from.nextWRID(), Opcode: verbs.OpSend, SGL: f.src.sge(k*x.Size, x.Size)})
		}
		f.from.post(f.sent...)
	}
	for _, f := range flights {
		for k := range inFlight {
			f.to.expectRecv(f.got[k], recvCompletion{op: verbs.WCOpRecv, size: x.Size}, f.to.timeout)
			f.from.expectSent(f.sent[k])
		}
	}
	x.checkMemory(flights[0].src, flights[0].dst, flights[1].src, flights[1].dst)
}
