package interop

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// write writes to the responder's memory. A SEND of one octet follows: its arrival shows that the
// data of the WRITE is placed.
func write(x *exchange) {
	x.fillSourceAndExpect()
	wr := x.request(verbs.OpRDMAWrite)
	wr.Remote = x.dst.remote()
	x.requester.executeAndSendOctet(x.responder, wr)
	x.checkMemory()
}

// writeImm writes with immediate data.
func writeImm(x *exchange) {
	x.fillSourceAndExpect()
	want := recvCompletion{op: verbs.WCOpRecvRDMAWithImm, size: x.Size, flags: verbs.WCWithImm, imm: immediate}
	x.transfer(verbs.OpRDMAWriteImm, nil, want)
	x.checkMemory()
}

// read reads the responder's memory.
func read(x *exchange) {
	x.dst.write(x.data)
	must(x.responder.syncMemory()) // makes the data visible to the device
	x.src.setWant(0, x.data)
	x.requester.execute(verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: x.src.sge(0, x.Size), Remote: x.dst.remote()})
	x.checkMemory()
}

// readMany posts more READs than may be outstanding, and a fenced WRITE of the last READ's data.
func readMany(x *exchange) {
	const reads = 3 * maxReads
	from, to := x.memory(x.responder, reads*x.Size, noExtraAccess), x.memory(x.requester, reads*x.Size, noExtraAccess)
	data := pattern(uint64(x.Size), reads*x.Size)
	from.write(data)
	to.setWant(0, data)
	must(x.responder.syncMemory())
	var wrs []verbs.SendWR
	for k := range reads {
		remote := from.remote()
		remote.Addr += uint64(k * x.Size)
		wrs = append(wrs, verbs.SendWR{WRID: x.requester.nextWRID(), Opcode: verbs.OpRDMARead, SGL: to.sge(k*x.Size, x.Size), Remote: remote})
	}
	last := (reads - 1) * x.Size
	x.dst.setWant(0, data[last:])
	wrs = append(wrs, verbs.SendWR{
		WRID: x.requester.nextWRID(), Opcode: verbs.OpRDMAWrite, Flags: verbs.SendFence, SGL: to.sge(last, x.Size), Remote: x.dst.remote(),
	})
	x.requester.executeAndSendOctet(x.responder, wrs...)
	x.checkMemory(from, to)
}

// atomic sets a word of the responder to oldValue, executes an atomic operation on it, and checks
// that the operation returns oldValue and changes the word to newValue.
func (x *exchange) atomic(op verbs.WROpcode, operands verbs.Atomic, oldValue, newValue uint64) {
	word := func(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
	x.dst.write(word(oldValue))
	must(x.responder.syncMemory())
	x.src.clear()
	x.src.setWant(0, word(oldValue))
	x.dst.setWant(0, word(newValue))
	x.requester.execute(verbs.SendWR{Opcode: op, SGL: x.src.sge(0, 8), Remote: x.dst.remote(), Atomic: operands})
	x.checkMemory()
}

// compareSwap tests a matching and a different compare value.
func compareSwap(x *exchange) {
	const before, different, after = 0x0123456789abcdef, 0x0123456789abcdee, 0xfedcba9876543210
	x.atomic(verbs.OpAtomicCmpAndSwp, verbs.Atomic{CompareAdd: before, Swap: after}, before, after)
	x.atomic(verbs.OpAtomicCmpAndSwp, verbs.Atomic{CompareAdd: different, Swap: after}, before, before)
}

// fetchAdd tests a carry into the highest octet, an overflow, and the byte order.
func fetchAdd(x *exchange) {
	for _, a := range []struct{ before, add uint64 }{{0x00ffffffffffffff, 1}, {^uint64(0), 2}, {0x1122334455667788, 0x0102030405060708}} {
		x.atomic(verbs.OpAtomicFetchAdd, verbs.Atomic{CompareAdd: a.add}, a.before, a.before+a.add)
	}
}

// atomicWrite tests ATOMIC WRITE.
func atomicWrite(x *exchange) {
	x.fillSourceAndExpect()
	x.requester.execute(verbs.SendWR{Opcode: verbs.OpAtomicWrite, SGL: x.src.sge(0, x.Size), Remote: x.dst.remote()})
	x.checkMemory()
}

// flush tests a WRITE and a FLUSH that makes its data globally visible.
func flush(x *exchange) {
	x.fillSourceAndExpect()
	wr := x.request(verbs.OpRDMAWrite)
	wr.Remote = x.dst.remote()
	flushWR := verbs.SendWR{
		WRID: x.requester.nextWRID(), Opcode: verbs.OpFlush, Remote: wr.Remote,
		Flush: verbs.Flush{Length: uint32(x.Size), Type: verbs.FlushGlobal, Level: verbs.FlushRange},
	}
	x.requester.post(wr, flushWR)
	x.requester.expectSent(wr)
	x.requester.expectSent(flushWR)
	x.checkMemory()
}

// datagram sends a UD datagram with immediate data, and checks its source address at the receiver.
func datagram(x *exchange) {
	x.src.write(x.data)
	x.transfer(verbs.OpSendImm, x.dst.sge(0, len(x.dst.area())), recvCompletion{
		op: verbs.WCOpRecv, size: verbs.GRHLen + x.Size, flags: verbs.WCWithImm, imm: immediate, from: x.requester.qp.QPN(),
	})
	must(x.responder.syncMemory())
	grh := x.dst.area()[:verbs.GRHLen]
	const port, sgidIndex = 1, 0 // for a reply, which is not sent
	reply := rig.Result(verbs.InitAHFromWC(port, sgidIndex, &verbs.WC{Flags: verbs.WCWithGRH}, grh))(x.responder, "parse the GRH of a datagram")
	if from := reply.GRH.DGID.Addr(); from != x.requester.addr {
		x.responder.fail("the source address of a datagram is %v, want %v", from, x.requester.addr)
	}
	x.dst.setWant(0, grh) // only its source address is checked
	x.dst.setWant(verbs.GRHLen, x.data)
	x.checkMemory()
}
