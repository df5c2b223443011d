package interop

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// accessByKey writes and reads the responder's memory by a key.
func (x *exchange) accessByKey(key verbs.RKey) error {
	x.src.write(0, x.data)
	x.dst.expect(0, x.data)
	remote := x.dst.remote()
	remote.RKey = key
	wr := x.request(verbs.OpRDMAWrite)
	wr.Remote = remote
	if err := inOrder(func() error { return x.postWithMessage(wr) }, x.checkMemory); err != nil {
		return err
	}
	x.src.clear()
	x.src.expect(0, x.data)
	wr = verbs.SendWR{WRID: x.requester.nextWRID(), Opcode: verbs.OpRDMARead, SGL: x.src.sge(0, x.Size), Remote: remote}
	if err := x.requester.post(wr); err != nil {
		return err
	}
	return inOrder(
		func() error { return x.requester.expectSent(wr.WRID, verbs.WCOpRDMARead) },
		x.checkMemory,
	)
}

// lostNakTimeout is how long to wait for a NAK that may be lost.
const lostNakTimeout = 10 * time.Second

// expectKeyInvalid checks that a READ by a key is refused, returns no data, and breaks
// the connection.
func (x *exchange) expectKeyInvalid(key verbs.RKey) error {
	x.src.clear()
	remote := x.dst.remote()
	remote.RKey = key
	wr := verbs.SendWR{WRID: x.requester.nextWRID(), Opcode: verbs.OpRDMARead, SGL: x.src.sge(0, x.Size), Remote: remote}
	if err := x.requester.post(wr); err != nil {
		return err
	}
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
	return inOrder(
		func() error {
			err := x.requester.expectError(wr.WRID, timeout, want...)
			if x.lossy && errors.Is(err, errNoCompletion) {
				return nil
			}
			return err
		},
		x.checkMemory,
	)
}

// refused tests a READ with an unknown key.
func refused(x *exchange) error {
	x.dst.write(0, x.data)
	return inOrder(
		x.responder.sync,
		func() error { return x.expectKeyInvalid(x.dst.mr.RKey() ^ 0x5a5a5a00) },
	)
}

// newWindow allocates a window of the responder.
func (x *exchange) newWindow(kind verbs.MWType) (verbs.MW, error) {
	mw, err := x.responder.pd.AllocMW(kind)
	return mw, x.responder.verbError("allocate a window", err)
}

// bindInfo returns the BindInfo for n octets of the responder's memory.
func (x *exchange) bindInfo(n int) verbs.BindInfo {
	return verbs.BindInfo{
		MR: x.dst.mr, Addr: x.dst.remote().Addr, Length: uint64(n), Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite,
	}
}

// bind binds a type 2 window to n octets, and returns its key.
func (x *exchange) bind(mw verbs.MW, n int) (verbs.RKey, error) {
	key := verbs.NextRKey(mw.RKey())
	wr := verbs.SendWR{WRID: x.responder.nextWRID(), Opcode: verbs.OpBindMW, Bind: verbs.Bind{MW: mw, RKey: key, Info: x.bindInfo(n)}}
	if err := x.responder.post(wr); err != nil {
		return 0, err
	}
	return key, x.responder.expectSent(wr.WRID, verbs.WCOpBindMW)
}

// windowType1 uses a type 1 window, unbinds it, and checks that its key is invalid.
func windowType1(x *exchange) (err error) {
	mw, err := x.newWindow(verbs.MWType1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.responder.verbError("close a window", mw.Close())) }()
	number := x.responder.nextWRID()
	key, err := x.responder.qp.BindMW(mw, number, verbs.SendSignaled, x.bindInfo(x.Size))
	if err != nil {
		return x.responder.verbError("bind a window", err)
	}
	if err := inOrder(
		func() error { return x.responder.expectSent(number, verbs.WCOpBindMW) },
		func() error { return x.accessByKey(key) },
	); err != nil {
		return err
	}
	number = x.responder.nextWRID()
	none, err := x.responder.qp.BindMW(mw, number, verbs.SendSignaled, x.bindInfo(0)) // unbinds it
	if err != nil {
		return x.responder.verbError("close a window", err)
	}
	// A refused request breaks the connection: one size tests the old key, the other the
	// key of the unbound window.
	if x.Size == windowSizes[1] {
		key = none
	}
	return inOrder(func() error { return x.responder.expectSent(number, verbs.WCOpBindMW) }, func() error { return x.expectKeyInvalid(key) })
}

// windowType2 uses a type 2 window until its owner invalidates it.
func windowType2(x *exchange) (err error) {
	mw, err := x.newWindow(verbs.MWType2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.responder.verbError("close a window", mw.Close())) }()
	key, err := x.bind(mw, x.Size)
	if err != nil {
		return err
	}
	if err := x.accessByKey(key); err != nil {
		return err
	}
	wr := verbs.SendWR{WRID: x.responder.nextWRID(), Opcode: verbs.OpLocalInv, InvalidateRKey: key}
	if err := x.responder.post(wr); err != nil {
		return err
	}
	return inOrder(
		func() error { return x.responder.expectSent(wr.WRID, verbs.WCOpLocalInv) },
		func() error { return x.expectKeyInvalid(key) },
	)
}

// sendInvalidate invalidates a key by a SEND, and checks that the key is invalid. The key
// is that of a window or, if the responder has none, of the region.
func sendInvalidate(x *exchange) (err error) {
	key := x.dst.mr.RKey()
	if x.responder.attr.Caps.Has(verbs.CapMWType2) {
		var mw verbs.MW
		if mw, err = x.newWindow(verbs.MWType2); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, x.responder.verbError("close a window", mw.Close())) }()
		if key, err = x.bind(mw, max(x.Size, 1)); err != nil { // a bind to 0 bytes is invalid
			return err
		}
	}
	var invErr error
	wr := x.request(verbs.OpSendInv)
	wr.InvalidateRKey = key
	box, err := x.responder.memory(x.responder.pd, max(x.Size, 1), 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.close()) }()
	x.src.write(0, x.data)
	number, err := x.responder.postRecv(box.sge(0, len(box.area())))
	if err != nil {
		return err
	}
	if err := x.requester.post(wr); err != nil {
		return err
	}
	box.expect(0, x.data)
	if err := inOrder(
		func() error { return x.responder.expectInvalidate(number, x.Size, key, &invErr) },
		func() error { return x.requester.expectSent(wr.WRID, verbs.WCOpSend) },
		x.checkMemory,
		box.check,
	); err != nil {
		return err
	}
	if x.Size > 0 { // a READ of no bytes needs no access right
		err = x.expectKeyInvalid(key)
	}
	// Report the completion's fields last, after the check that the key is invalid.
	return errors.Join(err, invErr)
}

// expectInvalidate waits for a message that invalidates a key. It stores errors about the
// invalidation fields in invErr.
func (p *queuePair) expectInvalidate(number uint64, size int, key verbs.RKey, invErr *error) error {
	wc, err := p.awaitCompletion(number, p.timeout)
	switch {
	case err != nil:
		return err
	case wc.Status != verbs.WCSuccess || wc.Opcode != verbs.WCOpRecv || int(wc.ByteLen) != size:
		return p.mismatch("the receive completed with %s; want %d octets", describe(&wc), size)
	case wc.Flags&verbs.WCWithInv == 0:
		*invErr = p.mismatch("the completion does not have the invalidate flag: flags %#x", uint32(wc.Flags))
	case wc.InvalidatedRKey != key:
		*invErr = p.mismatch("the completion has invalidated key %#x, want %#x", wc.InvalidatedRKey, key)
	}
	return nil
}
