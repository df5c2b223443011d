package nic

import (
	"github.com/fabrictest/fabrictest/verbs"
)

// Work is a posted send work request. It has no pointers to slices of the application.
type Work struct {
	WRID   uint64
	Op     verbs.WROpcode
	Flags  verbs.SendFlags
	SGL    []verbs.SGE // into Slots
	Inline []byte      // into Slots; nil if the payload is in SGL
	Length uint32      // length of the payload or of the local buffer

	Imm        uint32
	Invalidate uint32
	Remote     verbs.Remote
	Atomic     verbs.Atomic
	Window     *Window // bind only
	Bind       Bind
}

// Signaled reports whether a successful request generates a completion.
func (w *Work) Signaled() bool { return w.Flags&verbs.SendSignaled != 0 }

// IsSuccessfulSend reports whether a request that completes with status is a successful SEND.
func (w *Work) IsSuccessfulSend(status verbs.WCStatus) bool {
	return status == verbs.WCSuccess && (w.Op == verbs.OpSend || w.Op == verbs.OpSendImm || w.Op == verbs.OpSendInv)
}

// Gather fills dst with the payload of w, starting at byte off.
func (w *Work) Gather(b *Base, pd PD, dst []byte, off uint32) error {
	if w.Inline != nil {
		copy(dst, w.Inline[off:])
		return nil
	}
	return b.Gather(dst, w.SGL, pd, off)
}

// Completion returns the completion of w. Only successful READs and atomics have a ByteLen.
func (w *Work) Completion(status verbs.WCStatus, qpn verbs.QPN) verbs.WC {
	wc := verbs.WC{WRID: w.WRID, Status: status, Opcode: CompletionOpcode(w.Op), QPN: qpn}
	if status != verbs.WCSuccess {
		return wc
	}
	switch w.Op {
	case verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		wc.ByteLen = w.Length
	}
	return wc
}

// Slots store the gather lists and inline data of the work requests of a send
// queue. Their number is a power of two.
type Slots struct {
	sges      []verbs.SGE
	inline    []byte
	mask      uint32
	maxSGE    int
	maxInline int
}

// NewSlots returns memory for the gather entries and inline data of depth requests, and the
// number of requests that fit, a power of two.
func NewSlots(depth, maxSGE, maxInline int) (Slots, int) {
	places := CeilPow2(depth)
	return Slots{
		sges: make([]verbs.SGE, places*maxSGE), inline: make([]byte, places*maxInline),
		mask: uint32(places - 1), maxSGE: maxSGE, maxInline: maxInline,
	}, places
}

// MaxSGE returns the maximum number of gather entries of a request.
func (s *Slots) MaxSGE() int { return s.maxSGE }

// MaxInline returns the maximum inline data of a request.
func (s *Slots) MaxInline() int { return s.maxInline }

// Store copies wr to w, whose index in the queue is i. signalAll makes the request signaled.
func (s *Slots) Store(w *Work, i uint32, wr *verbs.SendWR, signalAll bool) {
	w.WRID, w.Op, w.Flags = wr.WRID, wr.Opcode, wr.Flags
	w.Imm, w.Invalidate, w.Remote, w.Atomic = wr.Imm, uint32(wr.InvalidateRKey), wr.Remote, wr.Atomic
	w.SGL, w.Inline, w.Length = nil, nil, 0
	if w.Window != nil { // of a bind that used this place: seldom, and Bind is long
		w.Window, w.Bind = nil, Bind{}
	}
	if signalAll {
		w.Flags |= verbs.SendSignaled
	}
	place := int(i & s.mask)
	switch {
	case wr.Flags&verbs.SendInline == 0:
		at := place * s.maxSGE
		w.SGL = append(s.sges[at:at:at+s.maxSGE], wr.SGL...)
		w.Length = sgeLength(wr.SGL)
	case len(wr.Inline) > 0:
		at := place * s.maxInline
		w.Inline = append(s.inline[at:at:at+s.maxInline], wr.Inline...)
		w.Length = uint32(len(wr.Inline))
	}
}

// StoreBind copies the parameters of a bind to w.
func (w *Work) StoreBind(wr *verbs.SendWR, window *Window, region *Region, pd PD, qpn uint32) {
	w.Window = window
	w.Bind = Bind{
		Region: region, Addr: wr.Bind.Info.Addr, Len: wr.Bind.Info.Length,
		Access: wr.Bind.Info.Access, Key: uint32(wr.Bind.RKey), PD: pd, QPN: qpn,
	}
}

// CompletionOpcode returns the completion opcode of an operation.
func CompletionOpcode(op verbs.WROpcode) verbs.WCOpcode {
	switch op {
	case verbs.OpRDMAWrite, verbs.OpRDMAWriteImm:
		return verbs.WCOpRDMAWrite
	case verbs.OpRDMARead:
		return verbs.WCOpRDMARead
	case verbs.OpAtomicCmpAndSwp:
		return verbs.WCOpCompSwap
	case verbs.OpAtomicFetchAdd:
		return verbs.WCOpFetchAdd
	case verbs.OpLocalInv:
		return verbs.WCOpLocalInv
	case verbs.OpBindMW:
		return verbs.WCOpBindMW
	case verbs.OpFlush:
		return verbs.WCOpFlush
	case verbs.OpAtomicWrite:
		return verbs.WCOpAtomicWrite
	default:
		return verbs.WCOpSend
	}
}
