package interop

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// accessByKey writes to the responder's memory by an R_Key, reads it back, and checks both.
func (x *exchange) accessByKey(key verbs.RKey) {
	x.fillSourceAndExpect()
	remote := x.dst.remote()
	remote.RKey = key
	wr := x.request(verbs.OpRDMAWrite)
	wr.Remote = remote
	x.requester.executeAndSendOctet(x.responder, wr)
	x.checkMemory()
	x.src.clear()
	x.src.setWant(0, x.data)
	x.requester.execute(verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: x.src.sge(0, x.Size), Remote: remote})
	x.checkMemory()
}

// lostNakTimeout is how long to wait for a NAK that may be lost.
const lostNakTimeout = 10 * time.Second

// expectKeyInvalid checks that a READ with key fails and returns no data. It breaks the connection.
func (x *exchange) expectKeyInvalid(key verbs.RKey) {
	x.src.clear()
	remote := x.dst.remote()
	remote.RKey = key
	wr := verbs.SendWR{WRID: x.requester.nextWRID(), Opcode: verbs.OpRDMARead, SGL: x.src.sge(0, x.Size), Remote: remote}
	x.requester.post(wr)
	x.pair.broken = true
	// Over iWARP the Terminate may arrive after the connection is closed.
	want := []verbs.WCStatus{verbs.WCRemAccessErr}
	if x.requester.isIWARP() {
		want = append(want, verbs.WCRemOpErr, verbs.WCRemInvReqErr, verbs.WCWRFlushErr, verbs.WCGeneralErr, verbs.WCFatalErr)
	}
	timeout := x.requester.timeout
	if x.lossy {
		// The NAK is sent once and may be lost. The requester then exhausts its retries,
		// or retries forever.
		want, timeout = append(want, verbs.WCRetryExcErr), lostNakTimeout
	}
	err := rig.Catch(func() { x.requester.expectError(wr.WRID, timeout, want...) })
	if !x.lossy || !errors.Is(err, ErrNoCompletion) {
		must(err)
	}
	x.checkMemory()
}

// refused tests that the responder refuses a READ with an unknown R_Key.
func refused(x *exchange) {
	x.dst.write(x.data)
	must(x.responder.syncMemory())
	const otherIndex = 0x5a5a5a00 // an R_Key is an index of 24 bits and a key of 8 bits
	x.expectKeyInvalid(x.dst.mr.RKey() ^ otherIndex)
}

// newWindow allocates a window of the responder.
func (x *exchange) newWindow(kind verbs.MWType) verbs.MW {
	mw := rig.Result(x.responder.pd.AllocMW(kind))(x.responder, "allocate a window")
	x.closeAtEnd(x.responder, "a window", mw)
	return mw
}

// bindInfo returns the BindInfo for the first n octets of the responder's memory.
func (x *exchange) bindInfo(n int) verbs.BindInfo {
	return verbs.BindInfo{
		MR: x.dst.mr, Addr: x.dst.remote().Addr, Length: uint64(n), Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite,
	}
}

// bindType1 binds a type 1 window to n octets of dst, and returns its R_Key. 0 octets unbind it.
func (x *exchange) bindType1(mw verbs.MW, n int) verbs.RKey {
	wrID := x.responder.nextWRID()
	key := rig.Result(x.responder.qp.BindMW(mw, wrID, verbs.SendSignaled, x.bindInfo(n)))(x.responder, "bind a window")
	x.responder.expectSent(verbs.SendWR{WRID: wrID, Opcode: verbs.OpBindMW})
	return key
}

// bindType2 binds a type 2 window to n octets of dst, and returns its new R_Key.
func (x *exchange) bindType2(mw verbs.MW, n int) verbs.RKey {
	key := verbs.NextRKey(mw.RKey())
	x.responder.execute(verbs.SendWR{Opcode: verbs.OpBindMW, Bind: verbs.Bind{MW: mw, RKey: key, Info: x.bindInfo(n)}})
	return key
}

// windowType1 uses a type 1 window, unbinds it, and checks that its key is invalid.
func windowType1(x *exchange) {
	mw := x.newWindow(verbs.MWType1)
	key := x.bindType1(mw, x.Size)
	x.accessByKey(key)
	unbound := x.bindType1(mw, 0)
	// A refused request breaks the connection, so a case tests one key: with the larger size the
	// key that unbinding has returned, else the key of the earlier bind.
	if x.Size == windowSizes[1] {
		key = unbound
	}
	x.expectKeyInvalid(key)
}

// windowType2 uses a type 2 window, and checks that its key is invalid after a local invalidate.
func windowType2(x *exchange) {
	key := x.bindType2(x.newWindow(verbs.MWType2), x.Size)
	x.accessByKey(key)
	x.responder.execute(verbs.SendWR{Opcode: verbs.OpLocalInv, InvalidateRKey: key})
	x.expectKeyInvalid(key)
}

// sendInvalidate invalidates a key of the responder by a SEND, and checks that the key is invalid.
// It is the key of a type 2 window or, if the responder does not support these, of the region.
func sendInvalidate(x *exchange) {
	key := x.dst.mr.RKey()
	if x.responder.attr.Caps.Has(verbs.CapMWType2) {
		key = x.bindType2(x.newWindow(verbs.MWType2), max(x.Size, 1)) // a bind to 0 bytes is invalid
	}
	wr := x.request(verbs.OpSendInv)
	wr.InvalidateRKey = key
	recvBuf := x.memory(x.responder, max(x.Size, 1), noExtraAccess)
	x.src.write(x.data)
	wrID := x.responder.postRecv(recvBuf.sge(0, len(recvBuf.area())))
	x.requester.post(wr)
	recvBuf.setWant(0, x.data)
	fieldsErr := x.responder.expectInvalidate(wrID, x.Size, key)
	x.requester.expectSent(wr)
	x.checkMemory(recvBuf)
	// Report the completion's fields last, after the check that the key is invalid.
	var err error
	if x.Size > 0 { // a READ of no bytes needs no access right
		err = rig.Catch(func() { x.expectKeyInvalid(key) })
	}
	must(errors.Join(err, fieldsErr))
}

// ErrNoInvalidateFlag means that the completion of a SEND with invalidate does not say so.
var ErrNoInvalidateFlag = errors.New("the completion does not have the invalidate flag")

// expectInvalidate waits for the receive of a SEND with invalidate of size octets. It returns an
// error if the completion lacks the invalidated key; any other wrong field ends the case.
func (p *queuePair) expectInvalidate(wrID uint64, size int, key verbs.RKey) error {
	wc := p.awaitCompletion(wrID, p.timeout)
	switch {
	case wc.Status != verbs.WCSuccess || wc.Opcode != verbs.WCOpRecv || int(wc.ByteLen) != size:
		p.fail("the receive completed with %s; want %d octets", rig.Describe(&wc), size)
	case wc.Flags&verbs.WCWithInv == 0:
		return p.mismatch("%w: flags %#x", ErrNoInvalidateFlag, uint32(wc.Flags))
	case wc.InvalidatedRKey != key:
		return p.mismatch("the completion has invalidated key %#x, want %#x", wc.InvalidatedRKey, key)
	}
	return nil
}
