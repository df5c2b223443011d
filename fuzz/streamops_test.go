package fuzz_test

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// Operations of the attacker, by the low bits of an octet of the program.
const (
	writeBytes = iota
	writeStartFrame
	writeULPDU
	writeSegment
	writePartialSegment
	writeDamagedSegment
	wait
	end
	reset
	another
	earlier
	post
	toggleReading
	streamOps
)

func (a *streamAttack) step(prog *program) {
	switch op := prog.octet(); op & 15 % streamOps {
	case writeBytes:
		a.write(prog.take(int(prog.octet())))
	case writeStartFrame:
		a.write(a.startFrame(prog, op>>4))
	case writeULPDU:
		if a.current != nil {
			a.write(a.current.framer.Append(nil, prog.take(int(prog.octet()))))
		}
	case writeSegment:
		a.write(a.segment(prog))
	case writePartialSegment:
		if b := a.segment(prog); len(b) > 0 {
			a.write(b[:int(prog.octet())%len(b)])
		}
	case writeDamagedSegment:
		if b := a.segment(prog); len(b) > 0 {
			at := prog.word()
			b[at/8%len(b)] ^= 1 << (at & 7)
			a.write(b)
		}
	case wait:
		a.runFor(prog.pause())
	case end:
		if a.current != nil {
			_ = a.current.CloseWrite(a.Now())
		}
	case reset:
		if a.current != nil {
			_ = a.current.Abort(a.Now())
		}
	case another:
		if a.listener == nil {
			a.dial()
		}
	case earlier:
		if len(a.conns) > 0 {
			a.current = a.conns[int(op>>4)%len(a.conns)]
		}
	case post:
		if n := len(a.v.queues); n > 0 {
			a.v.queues[int(op>>4)%n].work(prog.octet())
		}
	case toggleReading:
		if a.current != nil {
			a.current.notReading = !a.current.notReading
		}
	}
	a.runFor(5 * time.Microsecond)
}

// startFrame returns an MPA Request or Reply, valid or with some wrong fields.
func (a *streamAttack) startFrame(prog *program, how byte) []byte {
	f := wire.StartFrame{Reply: a.listener != nil, CRC: true, Enhanced: true, Revision: 2, PrivateData: []byte{0x80, 2, 0x80, 2}}
	if how&1 != 0 {
		flags := prog.octet()
		f.Reply = f.Reply != (flags&1 != 0)
		f.Markers, f.CRC, f.Reject, f.Enhanced = flags&2 != 0, flags&4 == 0, flags&8 != 0, flags&16 == 0
		f.Revision = 2 - flags>>5&3
		f.PrivateData = prog.take(int(prog.octet()) & 31)
	}
	return f.Append(nil)
}

// value returns a number that the device uses, such as a key, or one near it.
func (a *streamAttack) value(prog *program) uint64 {
	return a.values[int(prog.octet())%len(a.values)] + uint64(int64(int8(prog.octet())))
}

// remoteAddr returns a key and an address: of a region, at its start or around its end, or any
// values.
func (a *streamAttack) remoteAddr(prog *program) (wire.STag, uint64) {
	which := prog.octet()
	if which >= 0x80 {
		return wire.STag(a.value(prog)), a.value(prog)
	}
	r := a.regions[int(which)%len(a.regions)]
	near := int8(prog.octet())
	if near < 0 {
		return wire.STag(r.key), r.end + uint64(int64(near))
	}
	return wire.STag(r.key), r.at + uint64(near)
}

// segment returns a DDP segment in an FPDU, with fields that may be valid.
func (a *streamAttack) segment(prog *program) []byte {
	if a.current == nil {
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
		g.Tagged.STag, g.Tagged.TO = a.remoteAddr(prog)
	case op == wire.OpReadRequest:
		r := &g.ReadRequest
		r.SrcSTag, r.SrcTO = a.remoteAddr(prog)
		r.Size = uint32(prog.word())
		r.SinkSTag, r.SinkTO = 0x77, 0x1000
	case op == wire.OpAtomicRequest:
		g.AtomicRequest = wire.AtomicRequest{Op: wire.AtomicOp(how >> 6), AddSwap: 7, RequestID: uint32(how >> 5)}
		g.AtomicRequest.STag, g.AtomicRequest.TO = a.remoteAddr(prog)
	case op == wire.OpAtomicResponse:
		g.AtomicResponse.RequestID = uint32(prog.octet())
	case op == wire.OpTerminate:
		g.Terminate.Error = wire.TermError{Layer: wire.Layer(how >> 2 & 15), Type: how >> 6, Code: prog.octet()}
		g.Terminate.HasDDP = how>>1&1 == 1
		g.Terminate.HasLength = g.Terminate.HasDDP
	}
	g.Payload = prog.take(int(prog.octet()))
	return a.current.framer.Append(nil, g.Append(nil))
}
