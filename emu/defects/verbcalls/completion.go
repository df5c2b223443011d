package verbcalls

import (
	"math/bits"

	"github.com/fabrictest/fabrictest/verbs"
)

// loses reports whether nobody hears of a completion because of its status.
func (c *queue) loses(wc *verbs.WC) bool {
	q := &c.d.q
	if q.BusyQPStays || q.UnsignaledErrorsLost || q.RecvErrorIsQPOp {
		if p := c.d.pairOf(wc.QPN); p != nil && p.completed(wc) {
			return true
		}
	}
	return q.FlushesLost && wc.Status == verbs.WCWRFlushErr
}

// rewrite does to a completion what defects do to all.
func (d *device) rewrite(wc *verbs.WC) {
	q := &d.q
	d.changeReceive(wc)
	if q.InvalidateUnreported {
		wc.Flags &^= verbs.WCWithInv
		wc.InvalidatedRKey = 0
	}
	if q.SparseCompletions {
		empty(wc)
	}
	if q.LengthErrorsHidden && wc.Status == verbs.WCLocLenErr {
		wc.Status, wc.Opcode = verbs.WCSuccess, verbs.WCOpRecv
	}
	if q.WCOpcodeZero {
		wc.Opcode = verbs.WCOpSend
	}
	if q.WCLengthZero {
		wc.ByteLen = 0
	}
	if q.WCFlagsLost {
		wc.Flags, wc.Imm, wc.InvalidatedRKey = 0, 0, 0
	}
	if q.ImmSwapped {
		wc.Imm = bits.ReverseBytes32(wc.Imm)
	}
	if q.WCQPNWrong || q.QPNsRepeat {
		wc.QPN = verbs.QPN(d.firstQP.Load())
	}
	if q.SrcQPLost {
		wc.SrcQP = 0
	}
	if q.WRID32 {
		wc.WRID &= 1<<32 - 1
	}
}

// empty takes from a completion what SparseCompletions leaves out.
func empty(wc *verbs.WC) {
	switch {
	case wc.Status != verbs.WCSuccess:
		wc.WRID, wc.QPN = 0, 0
	case wc.Opcode == verbs.WCOpRDMARead, wc.Opcode == verbs.WCOpRecvRDMAWithImm:
		wc.ByteLen = 0
	}
	if wc.Flags&verbs.WCWithGRH != 0 {
		wc.SrcQP = 0
	}
	wc.Flags &^= verbs.WCWithInv
	wc.InvalidatedRKey = 0
}
