package interop

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// exchange is a case under way: near asks, far is asked.
type exchange struct {
	Case
	op        *operation
	near, far *port
	link      *link
	data      []byte // of the size of the case
	src, dst  *memory
	lossy     bool
}

// Immediate data whose octets are all different.
const immediate = 0x01a2c3e4

// exchange runs a case on a link.
func (l *link) exchange(c Case, op *operation, seed uint64) (err error) {
	x := &exchange{Case: c, op: op, near: l.ports[c.By], far: l.ports[c.By.other()], link: l, data: pattern(seed, c.Size), lossy: l.suite.Lossy}
	more := verbs.Access(0)
	if op.serves&(verbs.CapMWType1|verbs.CapMWType2) != 0 || c.Op == "send-inv" {
		more = verbs.AccessMWBind
	}
	room := max(c.Size, 1) // not every device takes a receive without memory
	if op.service == verbs.QPTypeUD {
		room += verbs.GRHLen
	}
	if x.src, err = x.near.memory(x.near.pd, room, 0); err != nil {
		return err
	}
	if !x.far.attr.Caps.Has(verbs.CapMWType1) {
		more = 0
	}
	if x.dst, err = x.far.memory(x.far.pd, room, more); err != nil {
		return errors.Join(err, x.src.close())
	}
	if err = op.run(x); err == nil {
		err = errors.Join(x.near.nothing(), x.far.nothing())
	}
	if err != nil {
		err = l.witnessed(err)
	}
	return errors.Join(err, x.src.close(), x.dst.close())
}

// witnessed adds to a failure what else the ends have seen.
func (l *link) witnessed(err error) error {
	for _, who := range []Side{Ours, Theirs} {
		if also := l.ports[who].nothing(); also != nil && also.Error() != err.Error() {
			err = fmt.Errorf("%w\n%w", err, also)
		}
	}
	return err
}

// request is a work request with the data, from our memory or within itself.
func (x *exchange) request(op verbs.WROpcode) verbs.SendWR {
	wr := verbs.SendWR{WRID: x.near.number(), Opcode: op, SGL: x.src.sge(0, x.Size)}
	if x.op.inline > 0 {
		wr.SGL, wr.Inline, wr.Flags = nil, x.data, verbs.SendInline
	}
	return wr
}

// checked looks at the memory of both ends.
func (x *exchange) checked() error {
	return errors.Join(x.near.look(), x.far.look(), x.src.check(), x.dst.check())
}

// message sends one, with all that has to arrive with it.
func (x *exchange) message(wr verbs.SendWR, want arrival) error {
	x.src.put(0, x.data)
	number, err := x.far.receive(x.dst.sge(0, len(x.dst.area())))
	if err != nil {
		return err
	}
	if err := x.near.post(wr); err != nil {
		return err
	}
	x.dst.expect(0, x.data)
	want.op, want.size = verbs.WCOpRecv, x.Size
	return inTurn(
		func() error { return x.far.arrived(number, want, x.far.patience) },
		func() error { return x.near.sent(wr.WRID, verbs.WCOpSend) },
		x.checked,
	)
}

func send(x *exchange) error { return x.message(x.request(verbs.OpSend), arrival{}) }

func sendImm(x *exchange) error {
	wr := x.request(verbs.OpSendImm)
	wr.Imm = immediate
	return x.message(wr, arrival{flags: verbs.WCWithImm, imm: immediate})
}

// many is how many requests are under way at once.
const many = 32

// sendMany has both ends send to each other, as much at once as the queues hold.
func sendMany(x *exchange) error {
	type flight struct {
		from, to  *port
		src, dst  *memory
		sent, got []uint64
	}
	flights := []*flight{{from: x.near, to: x.far}, {from: x.far, to: x.near}}
	defer func() {
		for _, f := range flights {
			for _, m := range []*memory{f.src, f.dst} {
				if m != nil {
					_ = m.close() // a port that cannot be closed tells of it
				}
			}
		}
	}()
	for i, f := range flights {
		var err error
		if f.src, err = f.from.memory(f.from.pd, many*x.Size, 0); err != nil {
			return err
		}
		if f.dst, err = f.to.memory(f.to.pd, many*x.Size, 0); err != nil {
			return err
		}
		data := pattern(uint64(x.Size+i), many*x.Size)
		f.src.put(0, data)
		f.dst.expect(0, data)
		for k := range many {
			number, err := f.to.receive(f.dst.sge(k*x.Size, x.Size))
			if err != nil {
				return err
			}
			f.got = append(f.got, number)
		}
	}
	for _, f := range flights {
		var wrs []verbs.SendWR
		for k := range many {
			wrs = append(wrs, verbs.SendWR{WRID: f.from.number(), Opcode: verbs.OpSend, SGL: f.src.sge(k*x.Size, x.Size)})
			f.sent = append(f.sent, wrs[k].WRID)
		}
		if err := f.from.post(wrs...); err != nil {
			return err
		}
	}
	for _, f := range flights {
		for k := range many {
			if err := inTurn(
				func() error { return f.to.arrived(f.got[k], arrival{op: verbs.WCOpRecv, size: x.Size}, f.to.patience) },
				func() error { return f.from.sent(f.sent[k], verbs.WCOpSend) },
			); err != nil {
				return err
			}
		}
	}
	if err := x.checked(); err != nil {
		return err
	}
	return errors.Join(flights[0].src.check(), flights[0].dst.check(), flights[1].src.check(), flights[1].dst.check())
}
