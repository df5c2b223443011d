package interop

import (
	"encoding/binary"
	"errors"

	"github.com/fabrictest/fabrictest/verbs"
)

// write writes to the responder's memory.
func write(x *exchange) error {
	x.src.write(0, x.data)
	x.dst.expect(0, x.data)
	wr := x.request(verbs.OpRDMAWrite)
	wr.Remote = x.dst.remote()
	return inOrder(func() error { return x.postWithMessage(wr) }, x.checkMemory)
}

// postWithMessage posts requests and a message after them, and waits for all. Over iWARP
// a WRITE completes when TCP has taken it; the message arrives when the WRITE is placed.
// No other receive may be posted.
func (x *exchange) postWithMessage(writes ...verbs.SendWR) (err error) {
	src, err := x.requester.memory(x.requester.pd, 1, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	dst, err := x.responder.memory(x.responder.pd, 1, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.close()) }()
	src.write(0, []byte{2})
	dst.expect(0, []byte{2})
	number, err := x.responder.postRecv(dst.sge(0, 1))
	if err != nil {
		return err
	}
	word := verbs.SendWR{WRID: x.requester.nextWRID(), Opcode: verbs.OpSend, SGL: src.sge(0, 1)}
	if err := x.requester.post(append(writes, word)...); err != nil {
		return err
	}
	for i := range writes {
		done := verbs.WCOpRDMAWrite
		if writes[i].Opcode == verbs.OpRDMARead {
			done = verbs.WCOpRDMARead
		}
		if err := x.requester.expectSent(writes[i].WRID, done); err != nil {
			return err
		}
	}
	return inOrder(
		func() error { return x.requester.expectSent(word.WRID, verbs.WCOpSend) },
		func() error {
			return x.responder.expectRecv(number, recvCompletion{op: verbs.WCOpRecv, size: 1}, x.responder.timeout)
		},
		dst.check,
	)
}

// writeImm writes with immediate data.
func writeImm(x *exchange) error {
	x.src.write(0, x.data)
	x.dst.expect(0, x.data)
	number, err := x.responder.postRecv(nil)
	if err != nil {
		return err
	}
	wr := x.request(verbs.OpRDMAWriteImm)
	wr.Remote, wr.Imm = x.dst.remote(), immediate
	if err := x.requester.post(wr); err != nil {
		return err
	}
	want := recvCompletion{op: verbs.WCOpRecvRDMAWithImm, size: x.Size, flags: verbs.WCWithImm, imm: immediate}
	return inOrder(
		func() error { return x.responder.expectRecv(number, want, x.responder.timeout) },
		func() error { return x.requester.expectSent(wr.WRID, verbs.WCOpRDMAWrite) },
		x.checkMemory,
	)
}

// read reads the responder's memory.
func read(x *exchange) error {
	x.dst.write(0, x.data)
	if err := x.responder.sync(); err != nil { // makes the data visible to the device
		return err
	}
	x.src.expect(0, x.data)
	wr := verbs.SendWR{WRID: x.requester.nextWRID(), Opcode: verbs.OpRDMARead, SGL: x.src.sge(0, x.Size), Remote: x.dst.remote()}
	if err := x.requester.post(wr); err != nil {
		return err
	}
	return inOrder(
		func() error { return x.requester.expectSent(wr.WRID, verbs.WCOpRDMARead) },
		x.checkMemory,
	)
}

// readMany posts more READs than may be outstanding, and a fenced WRITE of the data of
// the last READ.
func readMany(x *exchange) error {
	const reads = 3 * maxReads
	from, err := x.responder.memory(x.responder.pd, reads*x.Size, 0)
	if err != nil {
		return err
	}
	defer from.close() // closing the queue pair reports leftovers
	to, err := x.requester.memory(x.requester.pd, reads*x.Size, 0)
	if err != nil {
		return err
	}
	defer to.close()
	data := pattern(uint64(x.Size), reads*x.Size)
	from.write(0, data)
	to.expect(0, data)
	if err := x.responder.sync(); err != nil {
		return err
	}
	var wrs []verbs.SendWR
	for k := range reads {
		remote := from.remote()
		remote.Addr += uint64(k * x.Size)
		wrs = append(wrs, verbs.SendWR{WRID: x.requester.nextWRID(), Opcode: verbs.OpRDMARead, SGL: to.sge(k*x.Size, x.Size), Remote: remote})
	}
	last := (reads - 1) * x.Size
	x.dst.expect(0, data[last:])
	wrs = append(wrs, verbs.SendWR{
		WRID: x.requester.nextWRID(), Opcode: verbs.OpRDMAWrite, Flags: verbs.SendFence, SGL: to.sge(last, x.Size), Remote: x.dst.remote(),
	})
	return inOrder(func() error { return x.postWithMessage(wrs...) }, x.checkMemory, from.check, to.check)
}

// atomic executes an atomic on the responder's word, and checks the original and the new
// value.
func (x *exchange) atomic(op verbs.WROpcode, done verbs.WCOpcode, operands verbs.Atomic, was, is uint64) error {
	word := func(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
	x.dst.write(0, word(was))
	if err := x.responder.sync(); err != nil {
		return err
	}
	x.src.clear()
	x.src.expect(0, word(was))
	x.dst.expect(0, word(is))
	wr := verbs.SendWR{WRID: x.requester.nextWRID(), Opcode: op, SGL: x.src.sge(0, 8), Remote: x.dst.remote(), Atomic: operands}
	if err := x.requester.post(wr); err != nil {
		return err
	}
	return inOrder(
		func() error { return x.requester.expectSent(wr.WRID, done) },
		x.checkMemory,
	)
}

// compareSwap tests a matching and a different compare value.
func compareSwap(x *exchange) error {
	const was, other, is = 0x0123456789abcdef, 0x0123456789abcdee, 0xfedcba9876543210
	return inOrder(
		func() error {
			return x.atomic(verbs.OpAtomicCmpAndSwp, verbs.WCOpCompSwap, verbs.Atomic{CompareAdd: was, Swap: is}, was, is)
		},
		func() error {
			return x.atomic(verbs.OpAtomicCmpAndSwp, verbs.WCOpCompSwap, verbs.Atomic{CompareAdd: other, Swap: is}, was, was)
		},
	)
}

// fetchAdd adds with a carry through all octets and beyond the last.
func fetchAdd(x *exchange) error {
	add := func(was, by uint64) func() error {
		return func() error {
			return x.atomic(verbs.OpAtomicFetchAdd, verbs.WCOpFetchAdd, verbs.Atomic{CompareAdd: by}, was, was+by)
		}
	}
	return inOrder(add(0x00ffffffffffffff, 1), add(^uint64(0), 2), add(0x1122334455667788, 0x0102030405060708))
}

// atomicWrite writes a word atomically.
func atomicWrite(x *exchange) error {
	x.src.write(0, x.data)
	x.dst.expect(0, x.data)
	wr := verbs.SendWR{WRID: x.requester.nextWRID(), Opcode: verbs.OpAtomicWrite, SGL: x.src.sge(0, x.Size), Remote: x.dst.remote()}
	if err := x.requester.post(wr); err != nil {
		return err
	}
	return inOrder(func() error { return x.requester.expectSent(wr.WRID, verbs.WCOpAtomicWrite) }, x.checkMemory)
}

// flush writes and flushes to global visibility.
func flush(x *exchange) error {
	x.src.write(0, x.data)
	x.dst.expect(0, x.data)
	wr := x.request(verbs.OpRDMAWrite)
	wr.Remote = x.dst.remote()
	last := verbs.SendWR{
		WRID: x.requester.nextWRID(), Opcode: verbs.OpFlush, Remote: wr.Remote,
		Flush: verbs.Flush{Length: uint32(x.Size), Type: verbs.FlushGlobal, Level: verbs.FlushRange},
	}
	if err := x.requester.post(wr, last); err != nil {
		return err
	}
	return inOrder(
		func() error { return x.requester.expectSent(wr.WRID, verbs.WCOpRDMAWrite) },
		func() error { return x.requester.expectSent(last.WRID, verbs.WCOpFlush) },
		x.checkMemory,
	)
}
