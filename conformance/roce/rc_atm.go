package roce

import (
	"encoding/binary"
	"math"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var atomicCases = conformance.Group{Needs: verbs.CapRC | verbs.CapAtomics, Labels: labelRC}.Cases([]conformance.Case{{
	ID: "rc/atm/cas-stores-only-if-equal", Cite: ibta("", "rc/atm/1"),
	Title:   "COMPARE_SWAP stores its value if memory equals the compare value, and returns the original either way",
	Sends:   "a COMPARE_SWAP that differs from memory in one bit, then one that is equal",
	Expects: "the original value in both answers; memory changed by the second only",
	Defects: []string{"AtomicsWrong"}, Run: onConn(Setup{}, func(c *Conn) {
		const was, swap = 0x0123456789abcdef, 0xfedcba9876543210
		at := wordRETH(c.TargetMem, 2)
		setWord(c.TargetMem, 2, was)
		c.exchange(ib.CompareSwap(c.PeerPSN(0), at, was^1<<40, swap), ib.AtomicAck(c.PeerPSN(0), ib.AnyMSN, was))
		c.expectWord(c.TargetMem, 2, was)
		c.exchange(ib.CompareSwap(c.PeerPSN(1), at, was, swap), ib.AtomicAck(c.PeerPSN(1), ib.AnyMSN, was))
		c.expectWord(c.TargetMem, 2, swap)
	}),
}, {
	ID: "rc/atm/fetch-add-wraps", Cite: ibta("", "rc/atm/2"),
	Title:   "FETCH_ADD adds modulo 2^64 and returns the original",
	Sends:   "FETCH_ADDs of 5, of 2^64-1, of the difference to 2^64-1, and of 1",
	Expects: "the original values, and sums modulo 2^64",
	Defects: []string{"AtomicsWrong"}, Run: onConn(Setup{}, func(c *Conn) {
		value := uint64(1) << 60
		setWord(c.TargetMem, 2, value)
		for i, add := range []uint64{5, math.MaxUint64, math.MaxUint64 - value - 4, 1} {
			c.expectFetchAdd(i, add, value)
			value += add
			c.expectWord(c.TargetMem, 2, value)
		}
	}),
}, {
	ID: "rc/atm/misaligned-address-refused", Cite: ibta("9.4.5", "rc/atm/3"),
	Title:   "An atomic at an address that is no multiple of 8 is refused as an invalid request and not executed",
	Sends:   "FETCH_ADD and COMPARE_SWAP 1, 2 and 4 bytes after a multiple of 8",
	Expects: "a NAK for an invalid request, memory unchanged",
	Defects: []string{"AtomicMisaligned"}, Run: onEachConn(Setup{}, []int{1, 2, 4}, func(c *Conn, off int) {
		at := wordRETH(c.TargetMem, 2).Skip(off)
		c.expectNoEffect(c.TargetMem, ib.FetchAdd(c.PeerPSN(0), at, 1), ib.NakInvalidRequest)
		c = c.secondConn(Setup{})
		c.expectNoEffect(c.TargetMem, ib.CompareSwap(c.PeerPSN(0), at, 0, 1), ib.NakInvalidRequest)
	}),
}, {
	ID: "rc/atm/qp-without-the-right-refuses", Cite: ibta("", "rc/atm/8", "acc/4"),
	Title:   "A QP without the remote atomic right refuses atomics as invalid requests",
	Sends:   "a FETCH_ADD and a COMPARE_SWAP to a region that grants atomics on a QP that does not",
	Expects: "a NAK for an invalid request, memory unchanged",
	Defects: []string{"RightsIgnored"}, Run: onEachConn(Setup{access: allAccess &^ verbs.AccessRemoteAtomic}, []remoteOp{addOp, swapOp}, func(c *Conn, op remoteOp) {
		m := c.Memory(64, allAccess)
		setWord(m, 2, 0) // which a COMPARE_SWAP would change
		c.expectNoEffect(m, op.packet(c.PeerPSN(0), wordRETH(m, 2)), ib.NakInvalidRequest)
	}),
}, {
	ID: "rc/atm/region-without-the-right-refuses", Cite: ibta("", "rc/atm/8", "rc/atm/13", "acc/3"),
	Title:   "A region without the remote atomic right refuses atomics with a remote access NAK",
	Sends:   "a FETCH_ADD and a COMPARE_SWAP to a region that may be read and written but grants no atomics, and to one that may only be read",
	Expects: "a NAK for a remote access error, memory unchanged",
	Defects: []string{"RightsIgnored"}, Run: OnPort(func(p *Port) {
		for _, access := range []verbs.Access{allAccess &^ verbs.AccessRemoteAtomic, verbs.AccessRemoteRead} {
			eachConn(p, Setup{}, []remoteOp{addOp, swapOp}, func(c *Conn, op remoteOp) {
				m := c.Memory(64, access)
				setWord(m, 2, 0) // which a COMPARE_SWAP would change
				c.expectNoEffect(m, op.packet(c.PeerPSN(0), wordRETH(m, 2)), ib.NakRemoteAccess)
			})
		}
	}),
}, {
	ID: "rc/atm/end-of-the-region-refused", Cite: ibta("", "rc/atm/13"),
	Title:   "An atomic that does not lie wholly inside the region is refused with a remote access NAK and changes nothing",
	Sends:   "FETCH_ADDs to the last four bytes of a region, and to the eight after it",
	Expects: "a NAK for a remote access error, memory unchanged",
	Defects: []string{"RangeSlack"}, Run: onEachConn(Setup{}, []int{4, 0}, func(c *Conn, inside int) {
		// Register a part of the memory again, so that the case sees changes after its end.
		n := c.TargetMem.WordOffset(2) + inside
		mr, err := c.PD.RegMR(verbs.MRInit{Buf: c.TargetMem.Buf[:n:n], Addr: c.TargetMem.Addr(), Access: allAccess})
		c.Must("a region at chosen addresses", err)
		at := wordRETH(c.TargetMem, 2)
		at.RKey = new(uint32(mr.RKey()))
		c.expectNoEffect(c.TargetMem, ib.FetchAdd(c.PeerPSN(0), at, 1<<33+1), ib.NakRemoteAccess)
	}),
}, {
	ID: "rc/atm/qps-do-not-lose-updates", Cite: ibta("", "rc/atm/9"),
	Title:   "Atomics of several QPs on the same address lose no update",
	Sends:   "400 FETCH_ADDs of 1, four at a time on each of two QPs in turn",
	Expects: "400 different original values, one after the other, and their number added to memory",
	Defects: []string{"AtomicsPerQP"}, Run: onConn(Setup{}, func(c *Conn) {
		const rounds, atATime, start = 50, 4, 1 << 40
		setWord(c.TargetMem, 2, start)
		other, seen := c.secondConn(Setup{}), make(map[uint64]bool)
		for n := 0; n < rounds*atATime; n += atATime {
			for i := range atATime {
				c.Send(ib.FetchAdd(c.PeerPSN(n+i), wordRETH(c.TargetMem, 2), 1))
				other.Send(ib.FetchAdd(other.PeerPSN(n+i), wordRETH(c.TargetMem, 2), 1))
			}
			for _, p := range c.nextPackets(2 * atATime) {
				c.checkPacket(ib.Op(ib.OpAtomicAcknowledge), p)
				was := *p.AtomicAck.Original
				c.Check(!seen[was] && was-start < 2*rounds*atATime, "an original value that no other atomic returned", "%v", p)
				seen[was] = true
			}
		}
		c.expectWord(c.TargetMem, 2, start+2*rounds*atATime)
	}),
}, {
	ID: "rc/atm/duplicate-not-executed-again", Cite: ibta("summary of duplicate requests", "rc/atm/4"),
	Title:   "A duplicate atomic is not executed again, and gets the original result",
	Sends:   "a FETCH_ADD twice, a COMPARE_SWAP twice",
	Expects: "the same answer twice, one change of memory each",
	Defects: []string{"DuplicatesExecuted"}, Run: onConn(Setup{}, func(c *Conn) {
		setWord(c.TargetMem, 2, 100)
		swap := ib.CompareSwap(c.PeerPSN(1), wordRETH(c.TargetMem, 2), 105, 7)
		for range 2 {
			c.expectFetchAdd(0, 5, 100)
			c.expectWord(c.TargetMem, 2, 105)
		}
		for range 2 {
			c.exchange(swap, ib.AtomicAck(c.PeerPSN(1), ib.AnyMSN, 105))
			c.expectWord(c.TargetMem, 2, 7)
		}
	}),
}, {
	ID: "rc/atm/every-granted-result-is-kept", Cite: ibta("", "rc/atm/5"),
	Title:   "A responder keeps the results of max_dest_rd_atomic atomics",
	Sends:   "to a QP with max_dest_rd_atomic 4: six FETCH_ADDs one after the other, then the last four again, twice over",
	Expects: "each duplicate gets the original result, and adds nothing",
	Defects: []string{"ReplayKeepsOne"}, Run: onConn(Setup{Modify: withResponderResources(4)}, func(c *Conn) {
		results := c.fetchAddEach(6)
		for range 2 {
			for i := 2; i < 6; i++ {
				c.expectFetchAdd(i, 1<<i, results[i])
			}
		}
		c.expectWord(c.TargetMem, 2, results[6])
	}),
}, {
	ID: "rc/atm/results-kept-when-resources-change", Cite: ibta("", "rc/atm/5"),
	Title:   "Changing max_dest_rd_atomic does not discard the kept results",
	Sends:   "two FETCH_ADDs, then, with max_dest_rd_atomic raised from 2 to 4 in SQD, both again, two more, and all again; with 2 once more, the last two again",
	Expects: "the results of the first time, and nothing added",
	Defects: []string{"ModifyForgetsReplay", "NewResourcesIgnored", "FewerResourcesKeepOldest"}, Run: onConn(Setup{Modify: withResponderResources(2)}, func(c *Conn) {
		results := c.fetchAddEach(2)
		c.ToState(c.QP, verbs.QPStateSQD)
		resize := func(n uint8) {
			c.Must("other responder resources in SQD", c.QP.Modify(verbs.QPAttr{State: verbs.QPStateSQD, MaxDestRdAtomic: n},
				verbs.QPAttrState|verbs.QPAttrMaxDestRdAtomic))
		}
		resize(4)
		results = append(results, results[2]+1<<2, results[2]+1<<2+1<<3)
		for _, i := range []int{0, 1, 2, 3, 0, 1, 2, 3} {
			c.expectFetchAdd(i, 1<<i, results[i])
		}
		resize(2)
		for _, i := range []int{2, 3} {
			c.expectFetchAdd(i, 1<<i, results[i])
		}
		c.expectWord(c.TargetMem, 2, results[4])
	}),
}, {
	ID: "rc/atm/refused-beyond-responder-resources", Cite: ibta("", "rc/atm/6"),
	Title:   "An atomic beyond max_dest_rd_atomic is refused as an invalid request, and not executed, while others are not answered",
	Sends:   "to a QP with max_dest_rd_atomic 1: a READ, which is answered, one of 1 MiB and at once a FETCH_ADD",
	Expects: "a NAK for an invalid request with the PSN of the FETCH_ADD, memory unchanged",
	Defects: []string{"NoRdAtomicLimit"}, Run: onConn(Setup{Modify: withResponderResources(1)}, func(c *Conn) {
		excess := c.sendLongReads(0)
		c.Send(ib.FetchAdd(excess, wordRETH(c.TargetMem, 2), 1))
		c.expectNakAfterReads(excess)
		c.Sync()
		c.ExpectUntouched(c.TargetMem)
	}),
}, {
	ID: "rc/atm/duplicate-with-other-operands-executes-nothing", Cite: ibta("", "rc/atm/7"),
	Title:   "A packet with the PSN of an earlier atomic but another operation or operands executes nothing",
	Sends:   "a FETCH_ADD, then with its PSN another summand, another address, and a COMPARE_SWAP; after a WRITE, a FETCH_ADD with the PSN of that",
	Expects: "the result of the first or no response, to the last at most an ACK; memory as the first left it, and the QP continues",
	Defects: []string{"DuplicatesExecuted"}, Run: onConn(Setup{}, func(c *Conn) {
		setWord(c.TargetMem, 2, 100)
		at := wordRETH(c.TargetMem, 2)
		c.Send(ib.FetchAdd(c.PeerPSN(0), at, 5))
		saved := ib.AtomicAck(c.PeerPSN(0), ib.AnyMSN, 100)
		c.expect(saved)
		for _, odd := range []ib.Packet{
			ib.FetchAdd(c.PeerPSN(0), at, 6), ib.FetchAdd(c.PeerPSN(0), wordRETH(c.TargetMem, 3), 5), ib.CompareSwap(c.PeerPSN(0), at, 105, 1),
		} {
			c.Send(odd)
			if got, ok := c.NextAfterSync(shortWait); ok {
				c.checkPacket(saved, got)
			}
			c.expectWord(c.TargetMem, 2, 105)
		}
		c.expectAcked(c.peerWrite(1, 0))
		c.Send(ib.FetchAdd(c.PeerPSN(1), at, 5))
		if got, ok := c.NextAfterSync(shortWait); ok {
			c.checkPacket(ib.Ack(c.PeerPSN(1), ib.AnyMSN), got)
		}
		c.exchange(ib.FetchAdd(c.PeerPSN(2), at, 1), ib.AtomicAck(c.PeerPSN(2), ib.AnyMSN, 105))
	}),
}, {
	ID: "rc/atm/late-answer-leaves-the-result-alone", Cite: ibta("V1C09-060#07", "rc/atm/10"),
	Title:   "A duplicate response to a completed atomic changes no result and completes no request",
	Sends:   "the response to an atomic; while the next one is outstanding, that response again with another value; then the correct one",
	Expects: "each result is that of its response",
	Defects: []string{"OldAnswerCompletes"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.fetchAddWR(1, c.LocalMem.SGE(0, 8)))
		c.completeWith(ib.AtomicAck(c.DevicePSN(0), 1, 10), 1)
		c.LocalMem.Snapshot()
		c.request(1, c.fetchAddWR(2, c.LocalMem.SGE(8, 8)))
		c.Send(ib.AtomicAck(c.DevicePSN(0), 1, 666))
		c.expectNothing()
		c.ExpectUntouched(c.LocalMem)
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
			c.expect(ib.Packet{}.WithPSN(c.DevicePSN(i)))
			c.answerAtomic(i, 0x1122334455667788+uint64(i))
			c.ExpectBytes(c.LocalMem, 64, hostOrder(0x1122334455667788+uint64(i)))
			c.ExpectUnchangedOutside(c.LocalMem, 64, 8)
		}
	}),
}, {
	ID: "rc/atm/result-may-be-in-two-pieces", Cite: ibta("", "rc/atm/11"),
	Title:   "The result of an atomic may be scattered to several buffers",
	Sends:   "posts a FETCH_ADD with pieces of three and five bytes, and answers it",
	Expects: "the first three bytes of the result in one, the others in the other",
	Defects: []string{"AtomicOneSGE"}, Run: onConn(Setup{}, func(c *Conn) {
		c.PostSend(c.QP, c.fetchAddWR(1, c.LocalMem.SGE(256, 3), c.LocalMem.SGE(64, 5)))
		c.expect(ib.Packet{}.WithPSN(c.DevicePSN(0)))
		c.answerAtomic(0, 0x1122334455667788)
		c.ExpectBytes(c.LocalMem, 256, hostOrder(0x1122334455667788)[:3])
		c.ExpectBytes(c.LocalMem, 64, hostOrder(0x1122334455667788)[3:])
	}),
}, {
	ID: "rc/atm/result-of-another-size-refused", Cite: ibta("", "rc/atm/11"),
	Title:   "An atomic with a local buffer of another size than eight bytes fails, and is not sent",
	Sends:   "posts FETCH_ADDs and COMPARE_SWAPs with 0, 4, 7 and 16 bytes of local memory",
	Expects: "an error at the post or a completion with an error, and nothing on the wire",
	Defects: []string{"AtomicAnySize"}, Run: onEachConn(Setup{}, []int{0, 4, 7, 16}, func(c *Conn, n int) {
		c.expectNoneSent(c.fetchAddWR(1, c.LocalMem.SGE(0, n)))
	}),
}, {
	ID: "rc/atm/result-without-a-place-sends-nothing", Cite: ibta("", "rc/atm/11", "rc/read/15"),
	Title:   "An atomic with an invalid local buffer fails, and is not sent",
	Sends:   "posts FETCH_ADDs and COMPARE_SWAPs whose local memory may not be written, has a key that does not exist, or ends before them",
	Expects: "an error at the post or a completion with an error, and nothing on the wire",
	Defects: []string{"AtomicSinkUnchecked"}, Run: onEachConn(Setup{}, []badBuffer{
		{"memory without local write", func(c *Conn) verbs.SGE { return c.Memory(64, 0).SGE(0, 8) }},
		{"a key that does not exist", func(c *Conn) verbs.SGE { return c.unknownKeySGE(8) }},
		{"the end of a region", func(c *Conn) verbs.SGE { return c.LocalMem.SGE(memLen-7, 8) }},
	}, func(c *Conn, bad badBuffer) { c.expectNoneSent(c.fetchAddWR(1, bad.buffer(c))) }),
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

// expectFetchAdd sends a FETCH_ADD to the third word of TargetMem with the peer's k-th PSN, and
// fails the case unless the device returns this original value.
func (c *Conn) expectFetchAdd(k int, add, original uint64) {
	c.exchange(ib.FetchAdd(c.PeerPSN(k), wordRETH(c.TargetMem, 2), add), ib.AtomicAck(c.PeerPSN(k), ib.AnyMSN, original))
}

// fetchAddEach sends n FETCH_ADDs of 1, 2, 4 and so on to the third word of TargetMem, one at a
// time. It returns the n+1 successive values of the word.
func (c *Conn) fetchAddEach(n int) []uint64 {
	values := []uint64{1000}
	setWord(c.TargetMem, 2, values[0])
	for i := range n {
		c.expectFetchAdd(i, 1<<i, values[i])
		values = append(values, values[i]+1<<i)
	}
	return values
}

// atomicWriteCite cites the clause about ATOMIC WRITE.
var atomicWriteCite = cite("Annex A19", "oA19-28", []string{"rc/atm/14"})

var atomicWriteCases = conformance.Group{Needs: verbs.CapRC | verbs.CapAtomicWrite, Labels: labelRC}.Cases([]conformance.Case{{
	ID: "rc/atm/short-atomic-write-refused", Cite: atomicWriteCite,
	Title:   "An ATOMIC WRITE of other than eight bytes is refused as an invalid request and stores nothing",
	Sends:   "ATOMIC WRITEs with 0, 4 and 16 bytes, each with that length and with 8 in the RETH",
	Expects: "a NAK for an invalid request, memory unchanged",
	Defects: []string{"ShortAtomicWrite"}, Run: onEachConn(Setup{}, []atomicWriteSize{{4, 8}, {4, 4}, {0, 8}, {0, 0}, {16, 8}, {16, 16}}, func(c *Conn, w atomicWriteSize) {
		c.expectNoEffect(c.TargetMem, ib.AtomicWrite(c.PeerPSN(0), wordRETH(c.TargetMem, 2).Sized(w.length), Data(w.payload)), ib.NakInvalidRequest)
	}),
}, {
	ID: "rc/atm/misaligned-atomic-write-refused", Cite: atomicWriteCite,
	Title:   "An ATOMIC WRITE at an address that is no multiple of 8 is refused as an invalid request and stores nothing",
	Sends:   "ATOMIC WRITEs 1 and 4 bytes after a multiple of 8",
	Expects: "a NAK for an invalid request, memory unchanged",
	Defects: []string{"AtomicMisaligned"}, Run: onEachConn(Setup{}, []int{1, 4}, func(c *Conn, off int) {
		c.expectNoEffect(c.TargetMem, ib.AtomicWrite(c.PeerPSN(0), wordRETH(c.TargetMem, 2).Skip(off).Sized(8), Data(8)), ib.NakInvalidRequest)
	}),
}, {
	ID: "rc/atm/duplicate-atomic-write-stores-nothing", Cite: atomicWriteCite,
	Title:   "A duplicate ATOMIC WRITE is answered and stores nothing",
	Sends:   "an ATOMIC WRITE to the last word of a region, a WRITE to the same address, then the ATOMIC WRITE again, and once more with other data",
	Expects: "a RESPONSE_ONLY without payload to the first and its retransmission; memory as the WRITE left it",
	Defects: []string{"DuplicatesExecuted"}, Run: onConn(Setup{}, func(c *Conn) {
		last := (memLen-c.TargetMem.WordOffset(0))/8 - 1
		first := ib.AtomicWrite(c.PeerPSN(0), wordRETH(c.TargetMem, last), Data(8))
		done := ib.ReadResponseOnly(c.PeerPSN(0), ib.AnyMSN, []byte{})
		c.exchange(first, done)
		c.ExpectBytes(c.TargetMem, c.TargetMem.WordOffset(last), Data(8))
		c.expectAcked(ib.WriteOnly(c.PeerPSN(1), wordRETH(c.TargetMem, last), hostOrder(7)).AckReq())
		c.exchange(first, done)
		c.expectWord(c.TargetMem, last, 7)
		c.Send(first.WithPayload(hostOrder(8)))
		if got, ok := c.NextAfterSync(shortWait); ok {
			c.checkPacket(done, got)
		}
		c.expectWord(c.TargetMem, last, 7)
	}),
}})

// atomicWriteSize is the payload length of an ATOMIC WRITE, and the length in its RETH.
type atomicWriteSize struct{ payload, length int }

// hostOrder returns a number in host byte order.
func hostOrder(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }

// answerAtomic answers the device's n-th packet, an atomic with ID 1, and awaits its completion.
func (c *Conn) answerAtomic(n int, original uint64) {
	c.completeWith(ib.AtomicAck(c.DevicePSN(n), uint32(n+1), original), 1)
}

// expectNeverSent posts a request, which must fail, at once or by its completion, and not be sent.
func (c *Conn) expectNeverSent(wr verbs.SendWR) {
	_, err := c.QP.PostSend([]verbs.SendWR{wr})
	c.expectSilence(shortWait)
	if err == nil {
		c.expectErrorCompletion(wr.WRID)
	}
}

// expectNoneSent calls expectNeverSent for an atomic, as FETCH_ADD and as COMPARE_SWAP.
func (c *Conn) expectNoneSent(wr verbs.SendWR) {
	c.expectNeverSent(wr)
	wr.Opcode = verbs.OpAtomicCmpAndSwp
	c.secondConn(Setup{}).expectNeverSent(wr)
}

// badBuffer is local memory that the device must not write to.
type badBuffer struct {
	name   string
	buffer func(*Conn) verbs.SGE
}

func (p badBuffer) String() string { return p.name }

// unknownKeySGE returns n bytes of LocalMem with an L_Key that no region has.
func (c *Conn) unknownKeySGE(n int) verbs.SGE {
	sge := c.LocalMem.SGE(0, n)
	sge.LKey = verbs.LKey(unknownKey(verbs.RKey(sge.LKey)))
	return sge
}
