package interop

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// through writes and reads the other end's memory by a key.
func (x *exchange) through(key verbs.RKey) error {
	x.src.put(0, x.data)
	x.dst.expect(0, x.data)
	remote := x.dst.remote()
	remote.RKey = key
	wr := x.request(verbs.OpRDMAWrite)
	wr.Remote = remote
	if err := inTurn(func() error { return x.announced(wr) }, x.checked); err != nil {
		return err
	}
	x.src.wipe()
	x.src.expect(0, x.data)
	wr = verbs.SendWR{WRID: x.near.number(), Opcode: verbs.OpRDMARead, SGL: x.src.sge(0, x.Size), Remote: remote}
	if err := x.near.post(wr); err != nil {
		return err
	}
	return inTurn(
		func() error { return x.near.sent(wr.WRID, verbs.WCOpRDMARead) },
		x.checked,
	)
}

// lostRefusal is how long is waited for one that may have been lost.
const lostRefusal = 10 * time.Second

// shut checks that a key is of no use any more: a read by it is refused, not a byte
// comes, and the connection ends with that.
func (x *exchange) shut(key verbs.RKey) error {
	x.src.wipe()
	remote := x.dst.remote()
	remote.RKey = key
	wr := verbs.SendWR{WRID: x.near.number(), Opcode: verbs.OpRDMARead, SGL: x.src.sge(0, x.Size), Remote: remote}
	if err := x.near.post(wr); err != nil {
		return err
	}
	x.link.gone = true
	// Over iWARP a Terminate says so, which may find the connection closed already.
	want := []verbs.WCStatus{verbs.WCRemAccessErr}
	if x.near.streams() {
		want = append(want, verbs.WCRemOpErr, verbs.WCRemInvReqErr, verbs.WCWRFlushErr, verbs.WCGeneralErr, verbs.WCFatalErr)
	}
	patience := x.near.patience
	if x.lossy {
		// The refusal may be lost, and comes once: who refused has ended the connection. Who
		// asked gives up then, or, as some take seven retries, asks for ever.
		want, patience = append(want, verbs.WCRetryExcErr), lostRefusal
	}
	return inTurn(
		func() error {
			err := x.near.refused(wr.WRID, patience, want...)
			if x.lossy && errors.Is(err, errSilent) {
				return nil
			}
			return err
		},
		x.checked,
	)
}

// refused asks with a key that nobody has.
func refused(x *exchange) error {
	x.dst.put(0, x.data)
	return inTurn(
		x.far.look,
		func() error { return x.shut(x.dst.mr.RKey() ^ 0x5a5a5a00) },
	)
}

// window makes one at the far end.
func (x *exchange) window(kind verbs.MWType) (verbs.MW, error) {
	mw, err := x.far.pd.AllocMW(kind)
	return mw, x.far.fault("allocate a window", err)
}

func (x *exchange) bindInfo(n int) verbs.BindInfo {
	return verbs.BindInfo{
		MR: x.dst.mr, Addr: x.dst.remote().Addr, Length: uint64(n), Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite,
	}
}

// bind opens a window of type 2, of n octets, and returns its key.
func (x *exchange) bind(mw verbs.MW, n int) (verbs.RKey, error) {
	key := verbs.NextRKey(mw.RKey())
	wr := verbs.SendWR{WRID: x.far.number(), Opcode: verbs.OpBindMW, Bind: verbs.Bind{MW: mw, RKey: key, Info: x.bindInfo(n)}}
	if err := x.far.post(wr); err != nil {
		return 0, err
	}
	return key, x.far.sent(wr.WRID, verbs.WCOpBindMW)
}

// windowOne works through a window of type 1, closes it, and finds it closed.
func windowOne(x *exchange) (err error) {
	mw, err := x.window(verbs.MWType1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.far.fault("close a window", mw.Close())) }()
	number := x.far.number()
	key, err := x.far.qp.BindMW(mw, number, verbs.SendSignaled, x.bindInfo(x.Size))
	if err != nil {
		return x.far.fault("bind a window", err)
	}
	if err := inTurn(
		func() error { return x.far.sent(number, verbs.WCOpBindMW) },
		func() error { return x.through(key) },
	); err != nil {
		return err
	}
	number = x.far.number()
	none, err := x.far.qp.BindMW(mw, number, verbs.SendSignaled, x.bindInfo(0)) // which closes it
	if err != nil {
		return x.far.fault("close a window", err)
	}
	// A connection ends with what is refused: so one size tries the key that was, and
	// the other the key of a window of nothing.
	if x.Size == windowSizes[1] {
		key = none
	}
	return inTurn(func() error { return x.far.sent(number, verbs.WCOpBindMW) }, func() error { return x.shut(key) })
}

// windowTwo works through a window of type 2 until its owner has invalidated it.
func windowTwo(x *exchange) (err error) {
	mw, err := x.window(verbs.MWType2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.far.fault("close a window", mw.Close())) }()
	key, err := x.bind(mw, x.Size)
	if err != nil {
		return err
	}
	if err := x.through(key); err != nil {
		return err
	}
	wr := verbs.SendWR{WRID: x.far.number(), Opcode: verbs.OpLocalInv, InvalidateRKey: key}
	if err := x.far.post(wr); err != nil {
		return err
	}
	return inTurn(
		func() error { return x.far.sent(wr.WRID, verbs.WCOpLocalInv) },
		func() error { return x.shut(key) },
	)
}

// sendInvalidate works by a key, gives it back with a message, and finds it of no use.
// The key is a window's, or where there are none, the region's itself.
func sendInvalidate(x *exchange) (err error) {
	key := x.dst.mr.RKey()
	if x.far.attr.Caps.Has(verbs.CapMWType2) {
		var mw verbs.MW
		if mw, err = x.window(verbs.MWType2); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, x.far.fault("close a window", mw.Close())) }()
		if key, err = x.bind(mw, max(x.Size, 1)); err != nil { // one of nothing would be closed
			return err
		}
	}
	var said error
	wr := x.request(verbs.OpSendInv)
	wr.InvalidateRKey = key
	box, err := x.far.memory(x.far.pd, max(x.Size, 1), 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.close()) }()
	x.src.put(0, x.data)
	number, err := x.far.receive(box.sge(0, len(box.area())))
	if err != nil {
		return err
	}
	if err := x.near.post(wr); err != nil {
		return err
	}
	box.expect(0, x.data)
	if err := inTurn(
		func() error { return x.far.returned(number, x.Size, key, &said) },
		func() error { return x.near.sent(wr.WRID, verbs.WCOpSend) },
		x.checked,
		box.check,
	); err != nil {
		return err
	}
	if x.Size > 0 { // a read of nothing needs no right
		err = x.shut(key)
	}
	// What was said of it comes last, so that one who says it wrong is seen to do it right.
	return errors.Join(err, said)
}

// returned waits for a message that invalidates a key. What it says of that is kept for
// later.
func (p *port) returned(number uint64, size int, key verbs.RKey, said *error) error {
	wc, err := p.await(number, p.patience)
	switch {
	case err != nil:
		return err
	case wc.Status != verbs.WCSuccess || wc.Opcode != verbs.WCOpRecv || int(wc.ByteLen) != size:
		return p.differs("the message is %s; want %d octets of a receive", describe(&wc), size)
	case wc.Flags&verbs.WCWithInv == 0:
		*said = p.differs("the completion does not say that a key was invalidated: its flags are %#x", uint32(wc.Flags))
	case wc.InvalidatedRKey != key:
		*said = p.differs("the completion says that key %#x was invalidated, want %#x", wc.InvalidatedRKey, key)
	}
	return nil
}
