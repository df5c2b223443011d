package interop

import (
	"encoding/binary"
	"errors"

	"github.com/fabrictest/fabrictest/verbs"
)

// write writes to the other end's memory.
func write(x *exchange) error {
	x.src.put(0, x.data)
	x.dst.expect(0, x.data)
	wr := x.request(verbs.OpRDMAWrite)
	wr.Remote = x.dst.remote()
	return inTurn(func() error { return x.announced(wr) }, x.checked)
}

// announced posts writes, and a message behind them. Over iWARP a write is done for who
// asked when it has been handed to TCP; the message comes when it has been placed. It
// finds the one receive that there is.
func (x *exchange) announced(writes ...verbs.SendWR) (err error) {
	src, err := x.near.memory(x.near.pd, 1, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	dst, err := x.far.memory(x.far.pd, 1, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.close()) }()
	src.put(0, []byte{2})
	dst.expect(0, []byte{2})
	number, err := x.far.receive(dst.sge(0, 1))
	if err != nil {
		return err
	}
	word := verbs.SendWR{WRID: x.near.number(), Opcode: verbs.OpSend, SGL: src.sge(0, 1)}
	if err := x.near.post(append(writes, word)...); err != nil {
		return err
	}
	for i := range writes {
		done := verbs.WCOpRDMAWrite
		if writes[i].Opcode == verbs.OpRDMARead {
			done = verbs.WCOpRDMARead
		}
		if err := x.near.sent(writes[i].WRID, done); err != nil {
			return err
		}
	}
	return inTurn(
		func() error { return x.near.sent(word.WRID, verbs.WCOpSend) },
		func() error { return x.far.arrived(number, arrival{op: verbs.WCOpRecv, size: 1}, x.far.patience) },
		dst.check,
	)
}

func writeImm(x *exchange) error {
	x.src.put(0, x.data)
	x.dst.expect(0, x.data)
	number, err := x.far.receive(nil)
	if err != nil {
		return err
	}
	wr := x.request(verbs.OpRDMAWriteImm)
	wr.Remote, wr.Imm = x.dst.remote(), immediate
	if err := x.near.post(wr); err != nil {
		return err
	}
	want := arrival{op: verbs.WCOpRecvRDMAWithImm, size: x.Size, flags: verbs.WCWithImm, imm: immediate}
	return inTurn(
		func() error { return x.far.arrived(number, want, x.far.patience) },
		func() error { return x.near.sent(wr.WRID, verbs.WCOpRDMAWrite) },
		x.checked,
	)
}

// read reads the other end's memory.
func read(x *exchange) error {
	x.dst.put(0, x.data)
	if err := x.far.look(); err != nil { // the device has what we put there
		return err
	}
	x.src.expect(0, x.data)
	wr := verbs.SendWR{WRID: x.near.number(), Opcode: verbs.OpRDMARead, SGL: x.src.sge(0, x.Size), Remote: x.dst.remote()}
	if err := x.near.post(wr); err != nil {
		return err
	}
	return inTurn(
		func() error { return x.near.sent(wr.WRID, verbs.WCOpRDMARead) },
		x.checked,
	)
}

// readMany has more reads wait than may be under way, and a write behind them that
// sends what the last has read, and so has to wait for it.
func readMany(x *exchange) error {
	const reads = 3 * readers
	from, err := x.far.memory(x.far.pd, reads*x.Size, 0)
	if err != nil {
		return err
	}
	defer from.close() // a port that cannot be closed tells of it
	to, err := x.near.memory(x.near.pd, reads*x.Size, 0)
	if err != nil {
		return err
	}
	defer to.close()
	data := pattern(uint64(x.Size), reads*x.Size)
	from.put(0, data)
	to.expect(0, data)
	if err := x.far.look(); err != nil {
		return err
	}
	var wrs []verbs.SendWR
	for k := range reads {
		remote := from.remote()
		remote.Addr += uint64(k * x.Size)
		wrs = append(wrs, verbs.SendWR{WRID: x.near.number(), Opcode: verbs.OpRDMARead, SGL: to.sge(k*x.Size, x.Size), Remote: remote})
	}
	last := (reads - 1) * x.Size
	x.dst.expect(0, data[last:])
	wrs = append(wrs, verbs.SendWR{
		WRID: x.near.number(), Opcode: verbs.OpRDMAWrite, Flags: verbs.SendFence, SGL: to.sge(last, x.Size), Remote: x.dst.remote(),
	})
	return inTurn(func() error { return x.announced(wrs...) }, x.checked, from.check, to.check)
}

// atomic carries out one on the word at the other end, and checks what was there, and
// what is there then.
func (x *exchange) atomic(op verbs.WROpcode, done verbs.WCOpcode, operands verbs.Atomic, was, is uint64) error {
	word := func(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
	x.dst.put(0, word(was))
	if err := x.far.look(); err != nil {
		return err
	}
	x.src.wipe()
	x.src.expect(0, word(was))
	x.dst.expect(0, word(is))
	wr := verbs.SendWR{WRID: x.near.number(), Opcode: op, SGL: x.src.sge(0, 8), Remote: x.dst.remote(), Atomic: operands}
	if err := x.near.post(wr); err != nil {
		return err
	}
	return inTurn(
		func() error { return x.near.sent(wr.WRID, done) },
		x.checked,
	)
}

// compareSwap swaps where it is to, and not where it is not to.
func compareSwap(x *exchange) error {
	const was, other, is = 0x0123456789abcdef, 0x0123456789abcdee, 0xfedcba9876543210
	return inTurn(
		func() error {
			return x.atomic(verbs.OpAtomicCmpAndSwp, verbs.WCOpCompSwap, verbs.Atomic{CompareAdd: was, Swap: is}, was, is)
		},
		func() error {
			return x.atomic(verbs.OpAtomicCmpAndSwp, verbs.WCOpCompSwap, verbs.Atomic{CompareAdd: other, Swap: is}, was, was)
		},
	)
}

// fetchAdd adds, with a carry through all octets and beyond the last.
func fetchAdd(x *exchange) error {
	add := func(was, by uint64) func() error {
		return func() error {
			return x.atomic(verbs.OpAtomicFetchAdd, verbs.WCOpFetchAdd, verbs.Atomic{CompareAdd: by}, was, was+by)
		}
	}
	return inTurn(add(0x00ffffffffffffff, 1), add(^uint64(0), 2), add(0x1122334455667788, 0x0102030405060708))
}

// atomicWrite writes a word as one.
func atomicWrite(x *exchange) error {
	x.src.put(0, x.data)
	x.dst.expect(0, x.data)
	wr := verbs.SendWR{WRID: x.near.number(), Opcode: verbs.OpAtomicWrite, SGL: x.src.sge(0, x.Size), Remote: x.dst.remote()}
	if err := x.near.post(wr); err != nil {
		return err
	}
	return inTurn(func() error { return x.near.sent(wr.WRID, verbs.WCOpAtomicWrite) }, x.checked)
}

// flush writes, and has what was written be seen by everybody.
func flush(x *exchange) error {
	x.src.put(0, x.data)
	x.dst.expect(0, x.data)
	wr := x.request(verbs.OpRDMAWrite)
	wr.Remote = x.dst.remote()
	last := verbs.SendWR{
		WRID: x.near.number(), Opcode: verbs.OpFlush, Remote: wr.Remote,
		Flush: verbs.Flush{Length: uint32(x.Size), Type: verbs.FlushGlobal, Level: verbs.FlushRange},
	}
	if err := x.near.post(wr, last); err != nil {
		return err
	}
	return inTurn(
		func() error { return x.near.sent(wr.WRID, verbs.WCOpRDMAWrite) },
		func() error { return x.near.sent(last.WRID, verbs.WCOpFlush) },
		x.checked,
	)
}
