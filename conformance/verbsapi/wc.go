package verbsapi

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// wcCases test the fields of completions, for each operation.
var wcCases = []conformance.Case{
	requestCase("send", 0, verbs.WCOpSend, unspecified, func(l *qpPair) verbs.SendWR {
		l.partner.postRecv(1, recvOffset, 64)
		return l.dut.sendWR(2, 0, 24)
	}),
	requestCase("write", verbs.CapRC, verbs.WCOpRDMAWrite, unspecified, func(l *qpPair) verbs.SendWR {
		return l.dut.writeWR(2, 0, 24, l.partner.mem.Remote(256))
	}),
	requestCase("write-with-immediate", verbs.CapRC, verbs.WCOpRDMAWrite, unspecified, func(l *qpPair) verbs.SendWR {
		l.partner.postRecv(1, recvOffset, 64)
		wr := l.dut.writeWR(2, 0, 24, l.partner.mem.Remote(256))
		wr.Opcode, wr.Imm = verbs.OpRDMAWriteImm, 0x01020304
		return wr
	}),
	requestCase("read", verbs.CapRC, verbs.WCOpRDMARead, 24, func(l *qpPair) verbs.SendWR {
		return l.dut.readWR(2, 24, l.partner.mem.Remote(256))
	}),
	requestCase("compare-and-swap", verbs.CapRC|verbs.CapAtomics, verbs.WCOpCompSwap, 8, func(l *qpPair) verbs.SendWR {
		return l.dut.atomicWR(2, verbs.OpAtomicCmpAndSwp, l.partner.wordRemote(), verbs.Atomic{})
	}),
	requestCase("fetch-and-add", verbs.CapRC|verbs.CapAtomics, verbs.WCOpFetchAdd, 8, func(l *qpPair) verbs.SendWR {
		return l.dut.atomicWR(2, verbs.OpAtomicFetchAdd, l.partner.wordRemote(), verbs.Atomic{})
	}),
	{
		ID: "verbs/wc/receive", Cite: cite("ibv_poll_cq(3)", "verbs/wc/2"),
		Title:   "The completion of a receive has the opcode and the length, and no flags of immediate data or a key",
		Sends:   "messages of the peer of 1, 24 and 500 bytes",
		Expects: "RECV and the length, with the 40 bytes of the GRH area for datagrams; neither immediate data nor a key",
		Defects: []string{"WCOpcodeZero", "WCLengthZero"}, Run: onPair(setup{}, func(l *qpPair) {
			for _, n := range []int{1, 24, 500} {
				wc := expectDelivery(l.partner, l.dut, n)
				l.dut.Check(wc.Opcode == verbs.WCOpRecv, verbs.WCOpRecv.String(), "%v", wc.Opcode)
				l.dut.Check(wc.Flags&(verbs.WCWithImm|verbs.WCWithInv) == 0, "no flag of immediate data or of a key", "%#x", uint32(wc.Flags))
				l.dut.Check(wc.QPN == l.dut.qp.QPN(), fmt.Sprintf("queue pair %#x", uint32(l.dut.qp.QPN())), "%#x", uint32(wc.QPN))
			}
		}),
	},
	{
		ID: "verbs/wc/receive-with-immediate", Cite: cite("ibv_poll_cq(3)", "verbs/wc/3"),
		Title:   "The completion of a message with immediate data has the flag, and the data as posted",
		Sends:   "messages of the partner with immediate data and no payload, because not every transport has room for both",
		Expects: "RECV, the flag, and the data",
		Defects: []string{"WCFlagsLost", "ImmSwapped"}, Run: onPair(setup{}, func(l *qpPair) {
			l.requireImm()
			for _, imm := range []uint32{0x01020304, 0, 0xfffefdfc} {
				l.dut.postRecv(1, recvOffset, 64)
				wr := l.partner.sendWR(2, 0, 0)
				wr.Opcode, wr.Imm, wr.SGL = verbs.OpSendImm, imm, nil
				l.partner.sendImm(wr)
				wc := l.dut.ExpectRecv(1, l.dut.grhLen())
				l.dut.checkImm(wc, imm)
			}
		}),
	},
	{
		ID: "verbs/wc/receive-of-a-write", Cite: cite("ibv_poll_cq(3)", "verbs/wc/4"), Needs: verbs.CapRC,
		Title:   "A WRITE with immediate data completes a receive as RECV_RDMA_WITH_IMM, with the length of the WRITE, and does not change the receive's buffer",
		Sends:   "three times a write, and a write with immediate data, of the peer: of 40 bytes, of several packets, and of 24 bytes",
		Expects: "RECV_RDMA_WITH_IMM, the length, the data; the bytes where they were written, and none in the receive",
		Defects: []string{"WCOpcodeZero", "WCFlagsLost", "ImmSwapped", "WCLengthZero", "WriteLengthsAddUp", "WriteLengthOfLastSegment", "WriteLengthsOfAll"},
		Run: onPair(setup{}, func(l *qpPair) {
			l.requireImm()
			m := l.dut.Memory(64, verbs.AccessLocalWrite)
			const several = 100 << 10 // more than a TCP segment of any link carries
			from, to := l.partner.Memory(several, verbs.AccessLocalWrite), l.dut.Memory(several, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
			for i, n := range []int{40, several, 24} {
				id := uint64(i + 1)
				l.dut.PostRecv(l.dut.qp, id, m.SGE(0, 64))
				wr := l.partner.writeWR(10, 0, 0, to.Remote(0))
				wr.SGL = from.SGL(0, n)
				l.partner.execute(wr) // the length of this WRITE must not be added to that of the next
				wr.Opcode, wr.Imm = verbs.OpRDMAWriteImm, 0x0a0b0c0d
				l.partner.sendImm(wr)
				wc := l.dut.ExpectRecv(id, n)
				l.dut.Check(wc.Opcode == verbs.WCOpRecvRDMAWithImm, verbs.WCOpRecvRDMAWithImm.String(), "%v", wc.Opcode)
				l.dut.checkImm(wc, 0x0a0b0c0d)
				l.dut.ExpectBytes(to, 0, from.Buf[:n])
			}
			l.dut.ExpectUntouched(m)
		}),
	},
	{
		ID:   "verbs/wc/datagram-names-its-sender",
		Cite: cite("ibv_poll_cq(3)", "verbs/wc/5"), Needs: verbs.CapUD, Labels: []string{"service:ud"},
		Title:   "The completion of a datagram has the source QPN and the GRH flag",
		Sends:   "a datagram of the peer",
		Expects: "the source QPN and the GRH flag",
		Defects: []string{"SrcQPLost", "WCFlagsLost"}, Run: onPair(setup{qpType: verbs.QPTypeUD}, func(l *qpPair) {
			wc := expectDelivery(l.partner, l.dut, 24)
			l.dut.Check(wc.SrcQP == l.partner.qp.QPN(), fmt.Sprintf("source queue pair %#x", uint32(l.partner.qp.QPN())), "%#x", uint32(wc.SrcQP))
			l.dut.Check(wc.Flags&verbs.WCWithGRH != 0, "the GRH flag", "flags %#x", uint32(wc.Flags))
		}),
	},
}

// unspecified is the length in the completion of a request that sends data, since the manual page
// defines the length of incoming data only.
const unspecified = -1

// requestCase returns the case about the completion of a request: its opcode and, unless it is
// unspecified, its length.
func requestCase(name string, needs verbs.Caps, op verbs.WCOpcode, length int, request func(*qpPair) verbs.SendWR) conformance.Case {
	var defects []string
	if length != unspecified {
		defects = append(defects, "WCLengthZero")
	}
	if op != verbs.WCOpSend { // the opcode of a SEND is 0
		defects = append(defects, "WCOpcodeZero")
	}
	return conformance.Case{
		ID:    "verbs/wc/" + name,
		Title: fmt.Sprintf("The completion of a %s has opcode %v, the WR ID and the QPN", withSpaces(name), op),
		Cite:  cite("ibv_poll_cq(3)", "verbs/wc/1"), Needs: needs, Defects: append(defects, "WCQPNWrong"),
		Sends:   "a signaled " + withSpaces(name),
		Expects: "one completion with success, the opcode, the WR ID and the QPN",
		Run: rig.Body(func(r *rig.Rig) {
			newDefaultQP(r) // so that a device which always reports the QPN of its first queue pair fails
			l := newPair(rig.NewPair(r), setup{})
			wr := request(l)
			n, err := l.dut.qp.PostSend([]verbs.SendWR{wr})
			if err != nil && wr.Opcode == verbs.OpRDMAWriteImm {
				l.dut.abortIfNoImm(wr, err)
			}
			l.dut.Must("a request that is accepted", err)
			l.dut.Check(n == 1, "one request posted", "%d", n)
			wc := l.dut.ExpectCompletion(wr.WRID, verbs.WCSuccess)
			l.dut.Check(wc.Opcode == op, op.String(), "%v", wc.Opcode)
			l.dut.Check(wc.QPN == l.dut.qp.QPN(), fmt.Sprintf("queue pair %#x", uint32(l.dut.qp.QPN())), "%#x", uint32(wc.QPN))
			if length != unspecified {
				l.dut.Check(int(wc.ByteLen) == length, fmt.Sprintf("%d bytes", length), "%d", wc.ByteLen)
			}
			expectEmptyCQ(l.dut.Rig, l.dut.CQ)
		}),
	}
}

// sendImm posts a request with immediate data and waits for its completion. The case ends as
// unsupported if the transport has no immediate data; there is no capability for it.
func (e *endpoint) sendImm(wr verbs.SendWR) {
	if _, err := e.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		e.abortIfNoImm(wr, err)
		e.Must("a message with immediate data", err)
	}
	e.ExpectCompletion(wr.WRID, verbs.WCSuccess)
}

// requireImm ends the case as unsupported if the device has no immediate data, which is optional
// over iWARP (RFC 7306). It sends a message with immediate data to find out.
func (l *qpPair) requireImm() {
	if isIB(l.dut.Rig) {
		return
	}
	const id = 0x1dd
	l.partner.postRecv(id, recvOffset, 8)
	wr := l.dut.sendWR(id, 0, 0)
	wr.Opcode, wr.Imm, wr.SGL = verbs.OpSendImm, 7, nil
	l.dut.sendImm(wr)
	l.partner.ExpectRecv(id, l.partner.grhLen())
}

// abortIfNoImm ends the case as unsupported if err, of the post of a request with immediate data,
// means that the device has none: ErrNotSupported or, over iWARP, EINVAL, if the same request
// succeeds without immediate data.
func (e *endpoint) abortIfNoImm(wr verbs.SendWR, err error) {
	if errors.Is(err, verbs.ErrInvalid) && !isIB(e.Rig) {
		wr.Opcode, wr.Imm = map[verbs.WROpcode]verbs.WROpcode{verbs.OpSendImm: verbs.OpSend, verbs.OpRDMAWriteImm: verbs.OpRDMAWrite}[wr.Opcode], 0
		e.execute(wr)
	} else if !errors.Is(err, verbs.ErrNotSupported) {
		return
	}
	rig.Abort(fmt.Errorf("this transport, or its library, has no immediate data (%w): %w", err, conformance.ErrBenchCannot))
}

// checkImm fails the case unless a completion has this immediate data.
func (e *endpoint) checkImm(wc verbs.WC, imm uint32) {
	e.Check(wc.Flags&verbs.WCWithImm != 0 && wc.Imm == imm, fmt.Sprintf("immediate data %#08x", imm), "flags %#x, %#08x", uint32(wc.Flags), wc.Imm)
}
