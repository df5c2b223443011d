package verbsapi

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// wcCases ask what a completion says, operation by operation.
var wcCases = []conformance.Case{
	requested("send", 0, nil, verbs.WCOpSend, -1, func(l *link) verbs.SendWR {
		l.far.recv(1, toOff, 64)
		return l.near.sendWR(2, 0, 24)
	}),
	requested("write", verbs.CapRC, nil, verbs.WCOpRDMAWrite, -1, func(l *link) verbs.SendWR {
		return l.near.writeWR(2, 0, 24, l.far.remote(256))
	}),
	requested("write-with-immediate", verbs.CapRC, nil, verbs.WCOpRDMAWrite, -1, func(l *link) verbs.SendWR {
		l.far.recv(1, toOff, 64)
		wr := l.near.writeWR(2, 0, 24, l.far.remote(256))
		wr.Opcode, wr.Imm = verbs.OpRDMAWriteImm, 0x01020304
		return wr
	}),
	requested("read", verbs.CapRC, []string{"WCLengthZero"}, verbs.WCOpRDMARead, 24, func(l *link) verbs.SendWR {
		return l.near.readWR(2, toOff, 24, l.far.remote(256))
	}),
	requested("compare-and-swap", verbs.CapRC|verbs.CapAtomics, []string{"WCLengthZero"}, verbs.WCOpCompSwap, 8, func(l *link) verbs.SendWR {
		return l.near.atomicWR(2, verbs.OpAtomicCmpAndSwp, l.far.word(), verbs.Atomic{})
	}),
	requested("fetch-and-add", verbs.CapRC|verbs.CapAtomics, []string{"WCLengthZero"}, verbs.WCOpFetchAdd, 8, func(l *link) verbs.SendWR {
		return l.near.atomicWR(2, verbs.OpAtomicFetchAdd, l.far.word(), verbs.Atomic{})
	}),
	{
		ID:    "verbs/wc/receive",
		Title: "The completion of a receive says that it is one, how long the message was, and that it carries nothing else",
		Cite:  manual("ibv_poll_cq(3)", "verbs/wc/2"), Level: conformance.Must,
		Sends:   "messages of the peer of 1, 24 and 500 bytes",
		Expects: "RECV and the length, with the 40 bytes of the header area for datagrams; neither immediate data nor a key",
		Defects: []string{"WCOpcodeZero", "WCLengthZero"},
		Run: onLink(setup{}, func(l *link) {
			for _, n := range []int{1, 24, 500} {
				l.near.recv(1, toOff, 512)
				l.far.PostSend(l.far.qp, l.far.sendWR(2, 0, n))
				l.far.ExpectCompletion(2, verbs.WCSuccess)
				wc := l.near.got(1, toOff, l.far.mem.Buf[:n])
				l.near.Check(wc.Opcode == verbs.WCOpRecv, verbs.WCOpRecv.String(), "%v", wc.Opcode)
				l.near.Check(wc.Flags&(verbs.WCWithImm|verbs.WCWithInv) == 0, "no flag of immediate data or of a key", "%#x", uint32(wc.Flags))
				l.near.Check(wc.QPN == l.near.qp.QPN(), fmt.Sprintf("queue pair %#x", uint32(l.near.qp.QPN())), "%#x", uint32(wc.QPN))
			}
		}),
	},
	{
		ID:    "verbs/wc/receive-with-immediate",
		Title: "The completion of a message with immediate data has the flag and the data, as the sender's program gave it",
		Cite:  manual("ibv_poll_cq(3)", "verbs/wc/3"), Level: conformance.Must,
		Sends:   "messages of the peer with immediate data, of no bytes, since not every transport has room for both",
		Expects: "RECV, the flag, and the data",
		Defects: []string{"WCFlagsLost", "ImmSwapped"},
		Run: onLink(setup{}, func(l *link) {
			l.needsImmediate()
			for _, imm := range []uint32{0x01020304, 0, 0xfffefdfc} {
				l.near.recv(1, toOff, 64)
				wr := l.far.sendWR(2, 0, 0)
				wr.Opcode, wr.Imm, wr.SGL = verbs.OpSendImm, imm, nil
				l.far.sendsImmediate(wr)
				wc := l.near.ExpectRecv(1, l.near.area())
				l.near.brings(wc, imm)
			}
		}),
	},
	{
		ID:    "verbs/wc/receive-of-a-write",
		Title: "A write with immediate data completes a receive as such, with the length of the write, and leaves its memory alone",
		Cite:  manual("ibv_poll_cq(3)", "verbs/wc/4"), Level: conformance.Must, Needs: verbs.CapRC,
		Sends:   "a write with immediate data of the peer",
		Expects: "RECV_RDMA_WITH_IMM, the length, the data; the bytes where they were written, and none in the receive",
		Defects: []string{"WCOpcodeZero", "WCFlagsLost", "ImmSwapped", "WCLengthZero"},
		Run: onReliable(func(l *link) {
			l.needsImmediate()
			m := l.near.Memory(64, verbs.AccessLocalWrite)
			l.near.PostRecv(l.near.qp, 1, m.SGE(0, 64))
			wr := l.far.writeWR(2, 0, 40, l.near.remote(512))
			wr.Opcode, wr.Imm = verbs.OpRDMAWriteImm, 0x0a0b0c0d
			l.far.sendsImmediate(wr)
			wc := l.near.ExpectRecv(1, 40)
			l.near.Check(wc.Opcode == verbs.WCOpRecvRDMAWithImm, verbs.WCOpRecvRDMAWithImm.String(), "%v", wc.Opcode)
			l.near.brings(wc, 0x0a0b0c0d)
			l.near.ExpectBytes(l.near.mem, 512, l.far.mem.Buf[:40])
			l.near.ExpectUnchanged(m, 0, 0)
		}),
	},
	{
		ID:    "verbs/wc/datagram-names-its-sender",
		Title: "The completion of a datagram names the queue pair that sent it, and says that the header area is there",
		Cite:  manual("ibv_poll_cq(3)", "verbs/wc/5"), Level: conformance.Must, Needs: verbs.CapUD, Labels: []string{"service:ud"},
		Sends:   "a datagram of the peer",
		Expects: "its number as the source, and the flag of the header area",
		Defects: []string{"SrcQPLost", "WCFlagsLost"},
		Run: onLink(setup{kind: verbs.QPTypeUD}, func(l *link) {
			l.near.recv(1, toOff, 64)
			l.far.PostSend(l.far.qp, l.far.sendWR(2, 0, 24))
			wc := l.near.got(1, toOff, l.far.mem.Buf[:24])
			l.near.Check(wc.SrcQP == l.far.qp.QPN(), fmt.Sprintf("source queue pair %#x", uint32(l.far.qp.QPN())), "%#x", uint32(wc.SrcQP))
			l.near.Check(wc.Flags&verbs.WCWithGRH != 0, "the flag of the header area", "flags %#x", uint32(wc.Flags))
		}),
	},
}

// requested is the case of what the completion of a request says: its operation and,
// where length is not negative, how many bytes it brought. The page tells the length
// for what comes in; of what goes out devices tell what they like.
func requested(name string, needs verbs.Caps, defects []string, op verbs.WCOpcode, length int, request func(*link) verbs.SendWR) conformance.Case {
	if op != verbs.WCOpSend {
		defects = append(defects, "WCOpcodeZero")
	}
	return conformance.Case{
		ID:    "verbs/wc/" + name,
		Title: fmt.Sprintf("The completion of a %s says %v, which request it was, and of which queue pair", spaced(name), op),
		Cite:  manual("ibv_poll_cq(3)", "verbs/wc/1"), Level: conformance.Must, Needs: needs,
		Sends:   "a signaled " + spaced(name),
		Expects: "one completion with success, the operation, the ID and the number of the queue pair",
		Defects: append(defects, "WCQPNWrong"),
		Run: rig.Body(func(r *rig.Rig) {
			plainQP(r) // so that the one of the link is not the first
			l := newLink(r, setup{})
			wr := request(l)
			n, err := l.near.qp.PostSend([]verbs.SendWR{wr})
			if err != nil && wr.Opcode == verbs.OpRDMAWriteImm {
				l.near.noImmediate(wr, err)
			}
			l.near.Must("a request that is taken", err)
			l.near.Check(n == 1, "one request taken", "%d", n)
			wc := l.near.ExpectCompletion(wr.WRID, verbs.WCSuccess)
			l.near.Check(wc.Opcode == op, op.String(), "%v", wc.Opcode)
			l.near.Check(wc.QPN == l.near.qp.QPN(), fmt.Sprintf("queue pair %#x", uint32(l.near.qp.QPN())), "%#x", uint32(wc.QPN))
			l.near.Check(length < 0 || int(wc.ByteLen) == length, fmt.Sprintf("%d bytes", length), "%d", wc.ByteLen)
			drained(l.near.Rig, l.near.CQ)
		}),
	}
}

// sendsImmediate sends a message of the partner with immediate data, which ends the case
// as unsupported where the transport has none: there is no capability that says so.
func (e *end) sendsImmediate(wr verbs.SendWR) {
	if _, err := e.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		e.noImmediate(wr, err)
		e.Must("a message with immediate data", err)
	}
	e.ExpectCompletion(wr.WRID, verbs.WCSuccess)
}

// needsImmediate ends a case as unsupported if the device has no immediate data. Over
// iWARP it is an option (RFC 7306), and who cannot send it does not take it either.
func (l *link) needsImmediate() {
	if byHand(l.near.Rig) {
		return
	}
	const id = 0x1dd
	l.far.recv(id, toOff, 8)
	wr := l.near.sendWR(id, 0, 0)
	wr.Opcode, wr.Imm, wr.SGL = verbs.OpSendImm, 7, nil
	if _, err := l.near.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		l.near.noImmediate(wr, err)
		l.near.Must("a message with immediate data", err)
	}
	l.near.ExpectCompletion(id, verbs.WCSuccess)
	l.far.ExpectRecv(id, l.far.area())
}

// noImmediate ends a case as unsupported if a request was refused because there is no
// immediate data here. A library that does not know the verb may say no more than that
// something is wrong with the request: without immediate data nothing is.
func (e *end) noImmediate(wr verbs.SendWR, err error) {
	if errors.Is(err, verbs.ErrInvalid) && !byHand(e.Rig) {
		wr.Opcode, wr.Imm = map[verbs.WROpcode]verbs.WROpcode{verbs.OpSendImm: verbs.OpSend, verbs.OpRDMAWriteImm: verbs.OpRDMAWrite}[wr.Opcode], 0
		e.PostSend(e.qp, wr)
		e.ExpectCompletion(wr.WRID, verbs.WCSuccess)
	} else if !errors.Is(err, verbs.ErrNotSupported) {
		return
	}
	rig.Abort(fmt.Errorf("this transport, or its library, has no immediate data (%w): %w", err, conformance.ErrBenchCannot))
}

// brings ends the case unless a completion brings immediate data.
func (e *end) brings(wc verbs.WC, imm uint32) {
	e.Check(wc.Flags&verbs.WCWithImm != 0 && wc.Imm == imm, fmt.Sprintf("immediate data %#08x", imm), "flags %#x, %#08x", uint32(wc.Flags), wc.Imm)
}
