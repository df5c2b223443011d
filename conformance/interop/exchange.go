package interop

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// exchange is a running case.
type exchange struct {
	Case
	op                   *operation
	requester, responder *queuePair
	pair                 *qpPair
	data                 []byte // Size bytes
	src, dst             *memory
	lossy                bool
}

// immediate is immediate data that differs in every byte order.
const immediate = 0x01a2c3e4

// exchange runs a case on a pair.
func (l *qpPair) exchange(c Case, op *operation, seed uint64) (err error) {
	x := &exchange{Case: c, op: op, requester: l.qps[c.By], responder: l.qps[c.By.other()], pair: l, data: pattern(seed, c.Size), lossy: l.suite.Lossy}
	more := verbs.Access(0)
	if op.serves&(verbs.CapMWType1|verbs.CapMWType2) != 0 || c.Op == "send-inv" {
		more = verbs.AccessMWBind
	}
	room := max(c.Size, 1) // some devices refuse a receive without memory
	if op.service == verbs.QPTypeUD {
		room += verbs.GRHLen
	}
	if x.src, err = x.requester.memory(x.requester.pd, room, 0); err != nil {
		return err
	}
	if !x.responder.attr.Caps.Has(verbs.CapMWType1) {
		more = 0
	}
	if x.dst, err = x.responder.memory(x.responder.pd, room, more); err != nil {
		return errors.Join(err, x.src.close())
	}
	if err = op.run(x); err == nil {
		err = errors.Join(x.requester.expectNoCompletions(), x.responder.expectNoCompletions())
	}
	if err != nil {
		err = l.addUnexpected(err)
	}
	return errors.Join(err, x.src.close(), x.dst.close())
}

// addUnexpected adds unexpected completions of both sides to an error.
func (l *qpPair) addUnexpected(err error) error {
	for _, who := range []Side{Ours, Theirs} {
		if also := l.qps[who].expectNoCompletions(); also != nil && also.Error() != err.Error() {
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

// checkMemory checks the memory of both sides.
func (x *exchange) checkMemory() error {
	return errors.Join(x.requester.sync(), x.responder.sync(), x.src.check(), x.dst.check())
}

// sendMessage sends a message and checks its completions and the memory.
func (x *exchange) sendMessage(wr verbs.SendWR, want recvCompletion) error {
	x.src.write(0, x.data)
	number, err := x.responder.postRecv(x.dst.sge(0, len(x.dst.area())))
	if err != nil {
		return err
	}
	if err := x.requester.post(wr); err != nil {
		return err
	}
	x.dst.expect(0, x.data)
	want.op, want.size = verbs.WCOpRecv, x.Size
	return inOrder(
		func() error { return x.responder.expectRecv(number, want, x.responder.timeout) },
		func() error { return x.requester.expectSent(wr.WRID, verbs.WCOpSend) },
		x.checkMemory,
	)
}

func send(x *exchange) error { return x.sendMessage(x.request(verbs.OpSend), recvCompletion{}) }

func sendImm(x *exchange) error {
	wr := x.request(verbs.OpSendImm)
	wr.Imm = immediate
	return x.sendMessage(wr, recvCompletion{flags: verbs.WCWithImm, imm: immediate})
}

// inFlight is the number of concurrent requests of the "many" operations.
const inFlight = 32

// sendMany has both sides send inFlight messages to each other concurrently.
func sendMany(x *exchange) error {
	type flight struct {
		from, to  *queuePair
		src, dst  *memory
		sent, got []uint64
	}
	flights := []*flight{{from: x.requester, to: x.responder}, {from: x.responder, to: x.requester}}
	defer func() {
		for _, f := range flights {
			for _, m := range []*memory{f.src, f.dst} {
				if m != nil {
					_ = m.close() // closing the queue pair reports leftovers
				}
			}
		}
	}()
	for i, f := range flights {
		var err error
		if f.src, err = f.from.memory(f.from.pd, inFlight*x.Size, 0); err != nil {
			return err
		}
		if f.dst, err = f.to.memory(f.to.pd, inFlight*x.Size, 0); err != nil {
			return err
		}
		data := pattern(uint64(x.Size+i), inFlight*x.Size)
		f.src.write(0, data)
		f.dst.expect(0, data)
		for k := range inFlight {
			number, err := f.to.postRecv(f.dst.sge(k*x.Size, x.Size))
			if err != nil {
				return err
			}
			f.got = append(f.got, number)
		}
	}
	for _, f := range flights {
		var wrs []verbs.SendWR
		for k := range inFlight {
			wrs = append(wrs, verbs.SendWR{WRID: f.from.nextWRID(), Opcode: verbs.OpSend, SGL: f.src.sge(k*x.Size, x.Size)})
			f.sent = append(f.sent, wrs[k].WRID)
		}
		if err := f.from.post(wrs...); err != nil {
			return err
		}
	}
	for _, f := range flights {
		for k := range inFlight {
			if err := inOrder(
				func() error {
					return f.to.expectRecv(f.got[k], recvCompletion{op: verbs.WCOpRecv, size: x.Size}, f.to.timeout)
				},
				func() error { return f.from.expectSent(f.sent[k], verbs.WCOpSend) },
			); err != nil {
				return err
			}
		}
	}
	if err := x.checkMemory(); err != nil {
		return err
	}
	return errors.Join(flights[0].src.check(), flights[0].dst.check(), flights[1].src.check(), flights[1].dst.check())
}
