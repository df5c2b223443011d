package interop

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// write writes to the responder's memory.
func write(x *exchange) {
	x.writeSource()
	wr := x.request(verbs.OpRDMAWrite)
	wr.Remote = x.dst.remote()
	x.requester.sendOctet(x.responder, 2, wr)
	x.checkMemory()
}

// writeImm writes with immediate data.
func writeImm(x *exchange) {
	x.writeSource()
	wrID := x.responder.postRecv(nil)
	wr := x.request(verbs.OpRDMAWriteImm)
	wr.Remote, wr.Imm = x.dst.remote(), immediate
	x.requester.post(wr)
	want := recvCompletion{op: verbs.WCOpRecvRDMAWithImm, size: x.Size, flags: verbs.WCWithImm, imm: immediate}
	x.responder.expectRecv(wrID, want, x.responder.timeout)
	x.requester.expectSent(wr)
	x.checkMemory()
}

// read reads the responder's memory.
func read(x *exchange) {
	x.dst.write(0, x.data)
	check(x.responder.sync()) // makes the data visible to the device
	x.src.setWant(0, x.data)
	x.requester.execute(verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: x.src.sge(0, x.Size), Remote: x.dst.remote()})
	x.checkMemory()
}

// readMany posts more READs than may be outstanding, and a fenced WRITE of the data of
// the last READ.
func readMany(x *exchange) {
	const reads = 3 * maxReads
	from, to := x.memory(x.responder, reads*x.Size, 0), x.memory(x.requester, reads*x.Size, 0)
	data := pattern(uint64(x.Size), reads*x.Size)
	from.write(0, data)
	to.setWant(0, data)
	check(x.responder.sync())
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
	x.requester.sendOctet(x.responder, 2, wrs...)
	x.checkMemory(from, to)
}

// atomic executes an atomic on the responder's word, and checks the original and the new
// value.
func (x *exchange) atomic(op verbs.WROpcode, operands verbs.Atomic, was, is uint64) {
	word := func(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
	x.dst.write(0, word(was))
	check(x.responder.sync())
	x.src.clear()
	x.src.setWant(0, word(was))
	x.dst.setWant(0, word(is))
	x.requester.execute(verbs.SendWR{Opcode: op, SGL: x.src.sge(0, 8), Remote: x.dst.remote(), Atomic: operands})
	x.checkMemory()
}

// compareSwap tests a matching and a different compare value.
func compareSwap(x *exchange) {
	const was, other, is = 0x0123456789abcdef, 0x0123456789abcdee, 0xfedcba9876543210
	x.atomic(verbs.OpAtomicCmpAndSwp, verbs.Atomic{CompareAdd: was, Swap: is}, was, is)
	x.atomic(verbs.OpAtomicCmpAndSwp, verbs.Atomic{CompareAdd: other, Swap: is}, was, was)
}

// fetchAdd tests a carry into the highest octet, an overflow, and the byte order.
func fetchAdd(x *exchange) {
	for _, a := range []struct{ was, by uint64 }{{0x00ffffffffffffff, 1}, {^uint64(0), 2}, {0x1122334455667788, 0x0102030405060708}} {
		x.atomic(verbs.OpAtomicFetchAdd, verbs.Atomic{CompareAdd: a.by}, a.was, a.was+a.by)
	}
}

// atomicWrite writes a word atomically.
func atomicWrite(x *exchange) {
	x.writeSource()
	x.requester.execute(verbs.SendWR{Opcode: verbs.OpAtomicWrite, SGL: x.src.sge(0, x.Size), Remote: x.dst.remote()})
	x.checkMemory()
}

// flush writes and flushes to global visibility.
func flush(x *exchange) {
	x.writeSource()
	wr := x.request(verbs.OpRDMAWrite)
	wr.Remote = x.dst.remote()
	last := verbs.SendWR{
		WRID: x.requester.nextWRID(), Opcode: verbs.OpFlush, Remote: wr.Remote,
		Flush: verbs.Flush{Length: uint32(x.Size), Type: verbs.FlushGlobal, Level: verbs.FlushRange},
	}
	x.requester.post(wr, last)
	x.requester.expectSent(wr)
	x.requester.expectSent(last)
	x.checkMemory()
}

// Number of attempts and time per attempt for unacknowledged messages on a lossy link. A
// message of sixteen packets passes a loss of 5 % in more than one of three attempts.
const (
	unreliableTries = 40
	unreliablePause = 300 * time.Millisecond
)

// sendUnreliable posts an unacknowledged request and waits for receive wrID, and repeats that
// on a lossy link until the message arrives.
func (x *exchange) sendUnreliable(op verbs.WROpcode, wrID uint64, want recvCompletion) {
	once := func(timeout time.Duration) error {
		return rig.Catch(func() {
			wr := x.request(op)
			wr.Remote, wr.Imm = x.dst.remote(), want.imm
			x.requester.post(wr)
			x.requester.expectSent(wr)
			x.responder.expectRecv(wrID, want, timeout)
		})
	}
	if !x.lossy {
		check(once(x.responder.timeout))
		return
	}
	var err error
	for range unreliableTries {
		if err = once(unreliablePause); !errors.Is(err, errNoCompletion) {
			break
		}
	}
	check(err)
}

// sendUC sends a message over UC.
func sendUC(x *exchange) {
	x.writeSource()
	wrID := x.responder.postRecv(x.dst.sge(0, len(x.dst.area())))
	x.sendUnreliable(verbs.OpSend, wrID, recvCompletion{op: verbs.WCOpRecv, size: x.Size})
	x.checkMemory()
}

// writeImmUC writes with immediate data over UC.
func writeImmUC(x *exchange) {
	x.writeSource()
	wrID := x.responder.postRecv(nil)
	x.sendUnreliable(verbs.OpRDMAWriteImm, wrID,
		recvCompletion{op: verbs.WCOpRecvRDMAWithImm, size: x.Size, flags: verbs.WCWithImm, imm: immediate})
	x.checkMemory()
}

// datagram sends a UD datagram, and checks its source address at the receiver.
func datagram(x *exchange) {
	x.src.write(0, x.data)
	wrID := x.responder.postRecv(x.dst.sge(0, len(x.dst.area())))
	x.sendUnreliable(verbs.OpSendImm, wrID, recvCompletion{
		op: verbs.WCOpRecv, size: verbs.GRHLen + x.Size, flags: verbs.WCWithImm, imm: immediate, from: x.requester.qp.QPN(),
	})
	check(x.responder.sync())
	area := x.dst.area()[:verbs.GRHLen]
	reply, err := verbs.InitAHFromWC(1, 0, &verbs.WC{Flags: verbs.WCWithGRH}, area)
	check(x.responder.verbError("parse the GRH of a datagram", err))
	if from := reply.GRH.DGID.Addr(); from != x.requester.addr {
		check(x.responder.mismatch("the source address of a datagram is %v, want %v", from, x.requester.addr))
	}
	x.dst.setWant(0, area) // already checked
	x.dst.setWant(verbs.GRHLen, x.data)
	x.checkMemory()
}
