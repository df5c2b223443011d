package fuzz_test

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// What an octet of the program does.
const (
	sayAnything = iota
	sayStart
	sayULPDU
	saySegment
	sayPart
	sayDamaged
	wait
	end
	reset
	another
	earlier
	post
	listenNot
	streamOps
)

func (a *assault) step(prog *program) {
	switch op := prog.octet(); op & 15 % streamOps {
	case sayAnything:
		a.say(prog.take(int(prog.octet())))
	case sayStart:
		a.say(a.startFrame(prog, op>>4))
	case sayULPDU:
		if a.now != nil {
			a.say(a.now.framer.Append(nil, prog.take(int(prog.octet()))))
		}
	case saySegment:
		a.say(a.segment(prog))
	case sayPart:
		if b := a.segment(prog); len(b) > 0 {
			a.say(b[:int(prog.octet())%len(b)])
		}
	case sayDamaged:
		if b := a.segment(prog); len(b) > 0 {
			at := prog.word()
			b[at/8%len(b)] ^= 1 << (at & 7)
			a.say(b)
		}
	case wait:
		a.pass(prog.pause())
	case end:
		if a.now != nil {
			_ = a.now.CloseWrite(a.Now())
		}
	case reset:
		if a.now != nil {
			_ = a.now.Abort(a.Now())
		}
	case another:
		if a.answer == nil {
			a.dial()
		}
	case earlier:
		if len(a.lines) > 0 {
			a.now = a.lines[int(op>>4)%len(a.lines)]
		}
	case post:
		if n := len(a.v.queues); n > 0 {
			a.v.queues[int(op>>4)%n].work(prog.octet())
		}
	case listenNot:
		if a.now != nil {
			a.now.deaf = !a.now.deaf
		}
	}
	a.pass(5 * time.Microsecond)
}

// startFrame is an MPA Request or Reply: right, or nearly.
func (a *assault) startFrame(prog *program, how byte) []byte {
	f := wire.StartFrame{Reply: a.answer != nil, CRC: true, Enhanced: true, Revision: 2, PrivateData: []byte{0x80, 2, 0x80, 2}}
	if how&1 != 0 {
		flags := prog.octet()
		f.Reply = f.Reply != (flags&1 != 0)
		f.Markers, f.CRC, f.Reject, f.Enhanced = flags&2 != 0, flags&4 == 0, flags&8 != 0, flags&16 == 0
		f.Revision = 2 - flags>>5&3
		f.PrivateData = prog.take(int(prog.octet()) & 31)
	}
	return f.Append(nil)
}

// value is a number that means something to the device, or one near it.
func (a *assault) value(prog *program) uint64 {
	return a.values[int(prog.octet())%len(a.values)] + uint64(int64(int8(prog.octet())))
}

// place is a key and where it opens something: of one region, at its beginning or
// about its end, or of anything.
func (a *assault) place(prog *program) (wire.STag, uint64) {
	which := prog.octet()
	if which >= 0x80 {
		return wire.STag(a.value(prog)), a.value(prog)
	}
	r := a.places[int(which)%len(a.places)]
	near := int8(prog.octet())
	if near < 0 {
		return wire.STag(r.key), r.end + uint64(int64(near))
	}
	return wire.STag(r.key), r.at + uint64(near)
}

// segment is a DDP segment in an FPDU, with fields that may be right.
func (a *assault) segment(prog *program) []byte {
	if a.now == nil {
		return nil
	}
	op := wire.Opcode(prog.octet() & 15)
	info, _ := op.Info()
	var g wire.Segment
	how := prog.octet()
	g.Control = wire.NewControl(op, how&1 == 0)
	g.Untagged = wire.Untagged{QN: info.Queue + wire.QN(how>>1&1), MSN: wire.MSN(how >> 2 & 7), MO: uint32(how >> 5 & 1 * 16)}
	if how>>6 == 0 {
		g.Untagged.Invalidate = wire.STag(a.value(prog))
	}
	switch {
	case info.Tagged:
		g.Tagged.STag, g.Tagged.TO = a.place(prog)
	case op == wire.OpReadRequest:
		r := &g.ReadRequest
		r.SrcSTag, r.SrcTO = a.place(prog)
		r.Size = uint32(prog.word())
		r.SinkSTag, r.SinkTO = 0x77, 0x1000
	case op == wire.OpAtomicRequest:
		g.AtomicRequest = wire.AtomicRequest{Op: wire.AtomicOp(how >> 6), AddSwap: 7, RequestID: uint32(how >> 5)}
		g.AtomicRequest.STag, g.AtomicRequest.TO = a.place(prog)
	case op == wire.OpAtomicResponse:
		g.AtomicResponse.RequestID = uint32(prog.octet())
	case op == wire.OpTerminate:
		g.Terminate.Error = wire.TermError{Layer: wire.Layer(how >> 2 & 15), Type: how >> 6, Code: prog.octet()}
		g.Terminate.HasDDP = how>>1&1 == 1
		g.Terminate.HasLength = g.Terminate.HasDDP
	}
	g.Payload = prog.take(int(prog.octet()))
	return a.now.framer.Append(nil, g.Append(nil))
}
