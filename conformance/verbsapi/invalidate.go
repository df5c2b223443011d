package verbsapi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// invalidateCases test messages of the partner that invalidate keys.
var invalidateCases = alsoOverRD([]conformance.Case{{
	ID:   "verbs/mw/invalidated-by-the-peer",
	Cite: cite("ibv_poll_cq(3)", "verbs/mw/9"), Needs: verbs.CapMWType2 | verbs.CapSendInv,
	Title:   "The completion of a receive has the key that the message invalidated",
	Sends:   "a SEND with invalidate of the peer, with the key of a bound window; then a READ by this key",
	Expects: "a receive with the flag and the key; the READ fails",
	Defects: []string{"WCFlagsLost"}, Run: onPair(setup{}, func(l *qpPair) {
		at := l.dut.bindReadable(l.dut.newWindow(verbs.MWType2), 256, 64)
		wc := l.invalidate(at.RKey)
		l.dut.Check(wc.Flags&verbs.WCWithInv != 0 && wc.InvalidatedRKey == at.RKey,
			fmt.Sprintf("a completion that names the key %#x", at.RKey), "flags %#x, key %#x", uint32(wc.Flags), wc.InvalidatedRKey)
		l.expectRefused("read by a key that it has invalidated", l.partner.readWR(9, 16, at))
	}),
}, {
	ID:   "verbs/mw/of-another-queue-pair-not-invalidated",
	Cite: cite("", "verbs/mw/16"), Needs: verbs.CapMWType2 | verbs.CapSendInv,
	Title:   "A type 2 window can be invalidated only over the queue pair that bound it",
	Sends:   "a SEND that invalidates a window, over another queue pair of the same domain; then a READ through it over its own",
	Expects: "a receive that fails, and the bytes for the READ",
	Defects: []string{"ForeignInvalidate"}, Run: rig.PairBody(func(d *rig.Pair) {
		own, other := newPair(d, setup{}), newPair(d, setup{})
		at := own.dut.bindReadable(own.dut.newWindow(verbs.MWType2), 256, 64)
		other.expectInvalidateFails("a window of another queue pair", at.RKey)
		other.resetPartner()
		own.partner.expectRead(at, own.dut.mem.Buf[256:320])
	}),
}, {
	ID:   "verbs/mw/regions-and-type-1-not-invalidated",
	Cite: cite("o10-37.2.26", "verbs/mw/16"), Needs: verbs.CapMWType1 | verbs.CapSendInv,
	Title:   "Neither a region nor a type 1 window can be invalidated by a peer",
	Sends:   "SENDs that invalidate the key of a region, and that of a bound type 1 window; then READs by these keys over another queue pair",
	Expects: "receives that fail, and the bytes for the READs",
	Defects: []string{"InvalidateAnything"}, Run: rig.PairBody(func(d *rig.Pair) {
		l := newPair(d, setup{})
		window := l.dut.bindReadable(l.dut.newWindow(verbs.MWType1), 256, 64)
		for _, k := range []struct {
			what string
			at   verbs.Remote
		}{{"a region", l.dut.mem.Remote(256)}, {"a type 1 window", window}} {
			other := newPair(d, setup{})
			other.expectInvalidateFails(k.what, k.at.RKey)
			other.resetPartner()
			l.partner.expectRead(k.at, l.dut.mem.Buf[256:320])
		}
	}),
}, {
	ID:   "verbs/mw/free-window-not-invalidated",
	Cite: cite("", "verbs/mw/16"), Needs: verbs.CapMWType2 | verbs.CapSendInv, Labels: []string{conformance.Dangerous},
	Title:   "A type 2 window that is not bound cannot be invalidated, and other queue pairs are not affected",
	Sends:   "SENDs that invalidate a window which was never bound, and one that a SEND has invalidated before; a bind of each over another queue pair, and a READ through it",
	Expects: "receives that fail, and the bytes for the READs",
	Defects: []string{"UnboundInvalidate", "InvalidatedTwice"}, Run: rig.PairBody(func(d *rig.Pair) {
		for _, invalidated := range []bool{false, true} {
			l, other := newPair(d, setup{}), newPair(d, setup{})
			mw := l.dut.newWindow(verbs.MWType2)
			if invalidated {
				l.dut.bindReadable(mw, 256, 64)
				l.invalidate(mw.RKey())
			}
			l.expectInvalidateFails("a window that is not bound", mw.RKey())
			l.resetPartner()
			other.partner.expectRead(other.dut.bindReadable(mw, 256, 64), other.dut.mem.Buf[256:320])
		}
	}),
}})

// invalidate has the partner send a SEND that invalidates key, and returns the completion of the
// device's receive.
func (l *qpPair) invalidate(key verbs.RKey) verbs.WC {
	l.dut.postRecv(1, recvOffset, 64)
	wr := l.partner.sendWR(2, 0, 16)
	wr.Opcode, wr.InvalidateRKey = verbs.OpSendInv, key
	l.partner.execute(wr)
	return l.dut.ExpectRecv(1, l.dut.grhLen()+16)
}

// expectInvalidateFails has the partner send a SEND that invalidates key, and fails the case unless
// the device's receive fails. what names the object of the key. The status of the SEND is not
// checked: it depends on the transport.
func (l *qpPair) expectInvalidateFails(what string, key verbs.RKey) {
	const recv, send = 31, 32
	l.dut.postRecv(recv, recvOffset, 64)
	wr := l.partner.sendWR(send, 0, 16)
	wr.Opcode, wr.InvalidateRKey = verbs.OpSendInv, key
	l.partner.PostSend(l.partner.qp, wr)
	wc := l.dut.NextCompletion()
	l.dut.Check(wc.WRID == recv && wc.Status != verbs.WCSuccess, fmt.Sprintf("a receive that fails: %s (%#x) cannot be invalidated", what, key), "%s", rig.Describe(&wc))
}

// resetPartner resets the partner's queue pair, and discards its completions.
func (l *qpPair) resetPartner() {
	l.partner.ToState(l.partner.qp, reset)
	for {
		if _, ok := l.partner.PollCompletion(shortWait); !ok {
			return
		}
	}
}
