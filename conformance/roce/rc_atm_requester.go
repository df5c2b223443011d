package roce

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var atomicPostCases = conformance.Group{Needs: verbs.CapRC | verbs.CapAtomics, Labels: labelRC}.Cases([]conformance.Case{{
	ID: "rc/atm/late-answer-leaves-the-result-alone", Cite: ibta("", "rc/atm/10"),
	Title:   "A duplicate response to a completed atomic changes no result and completes no request",
	Sends:   "the response to an atomic; while the next one is outstanding, that response again with another value; then the correct one",
	Expects: "each result is that of its response",
	Defects: []string{"OldAnswerCompletes"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.fetchAddWR(1, c.LocalMem.SGE(0, 8)))
		c.completeWith(ib.AtomicAck(c.DevicePSN(0), 1, 10), 1)
		c.LocalMem.Snapshot()
		c.request(1, c.fetchAddWR(2, c.LocalMem.SGE(8, 8)))
		c.Send(ib.AtomicAck(c.DevicePSN(0), 1, 666))
		c.expectSilence(silencePeriod)
		c.ExpectNoCompletion()
		c.ExpectUnchanged(c.LocalMem, 0, 0)
		c.completeWith(ib.AtomicAck(c.DevicePSN(1), 2, 20), 2)
		c.ExpectBytes(c.LocalMem, 8, hostOrder(20))
	}),
}, {
	ID: "rc/atm/result-is-in-host-order", Cite: ibta("", "rc/atm/11"),
	Title:   "The result of an atomic is stored in the byte order of the host",
	Sends:   "to a FETCH_ADD and a COMPARE_SWAP: an answer with 0x1122334455667788",
	Expects: "that number in memory, and nothing around it changed",
	Defects: []string{"ByteOrderWrong"}, Run: onConn(Setup{}, func(c *Conn) {
		for i, op := range []verbs.WROpcode{verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp} {
			wr := c.fetchAddWR(1, c.LocalMem.SGE(64, 8))
			wr.Opcode = op
			c.PostSend(c.QP, wr)
			c.answerNextAtomic(i, 0x1122334455667788+uint64(i))
			c.ExpectBytes(c.LocalMem, 64, hostOrder(0x1122334455667788+uint64(i)))
			c.ExpectUnchanged(c.LocalMem, 64, 8)
		}
	}),
}, {
	ID: "rc/atm/result-may-be-in-two-pieces", Cite: ibta("", "rc/atm/11"),
	Title:   "The result of an atomic may be scattered to several buffers",
	Sends:   "posts a FETCH_ADD with pieces of three and five bytes, and answers it",
	Expects: "the first three bytes of the result in one, the others in the other",
	Defects: []string{"AtomicOneSGE"}, Run: onConn(Setup{}, func(c *Conn) {
		c.PostSend(c.QP, c.fetchAddWR(1, c.LocalMem.SGE(256, 3), c.LocalMem.SGE(64, 5)))
		c.answerNextAtomic(0, 0x1122334455667788)
		c.ExpectBytes(c.LocalMem, 256, hostOrder(0x1122334455667788)[:3])
		c.ExpectBytes(c.LocalMem, 64, hostOrder(0x1122334455667788)[3:])
	}),
}, {
	ID: "rc/atm/result-of-another-size-refused", Cite: ibta("", "rc/atm/11"),
	Title:   "An atomic with a local buffer of another size than eight bytes fails, and is not sent",
	Sends:   "posts FETCH_ADDs with 0, 4, 7 and 16 bytes of local memory",
	Expects: "an error at the post or a completion with an error, and nothing on the wire",
	Defects: []string{"AtomicAnySize"}, Run: onEachConn(Setup{}, []int{0, 4, 7, 16}, func(c *Conn, n int) {
		c.expectNeverSent(c.fetchAddWR(1, c.LocalMem.SGE(0, n)))
	}),
}, {
	ID: "rc/atm/result-without-a-place-sends-nothing", Cite: ibta("", "rc/atm/11", "rc/read/15"),
	Title:   "An atomic with an invalid local buffer fails, and is not sent",
	Sends:   "posts FETCH_ADDs whose local memory may not be written, has a key that does not exist, or ends before them",
	Expects: "an error at the post or a completion with an error, and nothing on the wire",
	Defects: []string{"AtomicSinkUnchecked"}, Run: onEachConn(Setup{}, []badBuffer{
		{"memory without local write", func(c *Conn) verbs.SGE { return c.Memory(64, 0).SGE(0, 8) }},
		{"a key that does not exist", func(c *Conn) verbs.SGE { return c.unknownKeySGE(8) }},
		{"the end of a region", func(c *Conn) verbs.SGE { return c.LocalMem.SGE(memLen-7, 8) }},
	}, func(c *Conn, bad badBuffer) { c.expectNeverSent(c.fetchAddWR(1, bad.buffer(c))) }),
}, {
	ID: "rc/atm/unused-operand-is-zero", Cite: ibta("", "rc/atm/12"),
	Title:   "The compare field that FETCH_ADD does not use is sent as zero",
	Sends:   "posts a COMPARE_SWAP and then a FETCH_ADD, with both operands of each set, sixteen times",
	Expects: "both operands in each COMPARE_SWAP; the addend and a compare field of 0 in each FETCH_ADD",
	Defects: []string{"FetchAddLeaks"}, Run: onConn(Setup{}, func(c *Conn) {
		// A device that does not write the field sends old memory. Each packet is
		// answered before the next is posted, so that the device reuses its memory.
		wr, operands := c.fetchAddWR(1), verbs.Atomic{CompareAdd: 0x1111222233334444, Swap: 0x5555666677778888}
		wr.Atomic = operands
		for n := 0; n < 32; n += 2 {
			wr.Opcode = verbs.OpAtomicCmpAndSwp
			c.PostSend(c.QP, wr)
			c.expect(ib.CompareSwap(c.DevicePSN(n), peerMemoryRETH(8), operands.CompareAdd, operands.Swap))
			c.answerAtomic(n, 0)
			wr.Opcode = verbs.OpAtomicFetchAdd
			c.PostSend(c.QP, wr)
			c.expect(ib.FetchAdd(c.DevicePSN(n+1), peerMemoryRETH(8), operands.CompareAdd).WithCompare(0))
			c.answerAtomic(n+1, 0)
		}
	}),
}})

// hostOrder returns a number in host byte order.
func hostOrder(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }

// answerNextAtomic waits for the device's n-th packet, an atomic, and answers it.
func (c *Conn) answerNextAtomic(n int, original uint64) {
	c.expect(ib.Packet{}.WithPSN(c.DevicePSN(n)))
	c.answerAtomic(n, original)
}

// answerAtomic answers the device's n-th packet, an atomic, and waits for its completion.
func (c *Conn) answerAtomic(n int, original uint64) {
	c.completeWith(ib.AtomicAck(c.DevicePSN(n), uint32(n+1), original), 1)
}

// expectNeverSent fails the case unless the device refuses a request, at the post or by a
// completion with an error, and sends nothing.
func (c *Conn) expectNeverSent(wr verbs.SendWR) {
	_, err := c.QP.PostSend([]verbs.SendWR{wr})
	c.expectSilence(shortWait)
	if err == nil {
		c.expectErrorCompletion(wr.WRID)
	}
}

// badBuffer is local memory that the device must not write to.
type badBuffer struct {
	name   string
	buffer func(*Conn) verbs.SGE
}

// String implements fmt.Stringer.
func (p badBuffer) String() string { return p.name }

// unknownKeySGE returns n bytes of LocalMem with an L_Key that no region has.
func (c *Conn) unknownKeySGE(n int) verbs.SGE {
	sge := c.LocalMem.SGE(0, n)
	sge.LKey = verbs.LKey(unknownKey(verbs.RKey(sge.LKey)))
	return sge
}
