package verbsapi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

const needsSendInv = verbs.CapMWType2 | verbs.CapSendInv

// Messages of peers that invalidate keys.
var invalidateCases = overBoth([]conformance.Case{
	{
		ID:    "verbs/mw/invalidated-by-the-peer",
		Title: "The completion of a message that invalidates names the key",
		Cite:  manual("ibv_poll_cq(3)", "verbs/mw/9"), Level: conformance.Must, Needs: needsSendInv,
		Sends:   "a SEND with invalidate of the peer, with the key of a bound window; then a READ by this key",
		Expects: "a receive with the flag and the key; and that the READ fails",
		Defects: []string{"WCFlagsLost"},
		Run: onReliable(func(l *link) {
			at := l.near.opens(l.near.window(verbs.MWType2), 256, 64)
			l.near.recv(1, toOff, 64)
			wr := l.far.sendWR(2, 0, 16)
			wr.Opcode, wr.InvalidateRKey = verbs.OpSendInv, at.RKey
			l.far.PostSend(l.far.qp, wr)
			l.far.ExpectCompletion(2, verbs.WCSuccess)
			wc := l.near.ExpectRecv(1, l.near.area()+16)
			l.near.Check(wc.Flags&verbs.WCWithInv != 0 && wc.InvalidatedRKey == at.RKey,
				fmt.Sprintf("a completion that names the key %#x", at.RKey), "flags %#x, key %#x", uint32(wc.Flags), wc.InvalidatedRKey)
			l.refuses("read by a key that it has invalidated", l.far.readWR(9, toOff, 16, at))
		}),
	},
	{
		ID:    "verbs/mw/of-another-queue-pair-not-invalidated",
		Title: "A type 2 window can be invalidated over the queue pair that bound it only, and stays open else",
		Cite:  manual("", "verbs/mw/16"), Level: conformance.Must, Needs: needsSendInv,
		Sends:   "a SEND that invalidates a window, over another queue pair of the same domain; then a READ through it over its own",
		Expects: "a receive that fails, and the bytes for the READ",
		Defects: []string{"ForeignInvalidate"},
		Run: onSides(func(d *sides) {
			own, other := d.link(setup{}), d.link(setup{})
			at := own.near.opens(own.near.window(verbs.MWType2), 256, 64)
			other.invalidatesNot("a window of another queue pair", at.RKey)
			other.dropped()
			own.far.reads(at, own.near.mem.Buf[256:320])
		}),
	},
	{
		ID:    "verbs/mw/regions-and-type-1-not-invalidated",
		Title: "Neither a region nor a type 1 window can be invalidated by a peer, and both stay open",
		Cite:  manual("o10-37.2.26", "verbs/mw/16"), Level: conformance.Must, Needs: verbs.CapMWType1 | verbs.CapSendInv,
		Sends:   "SENDs that invalidate the key of a region, and that of a bound type 1 window; then READs by these keys over another queue pair",
		Expects: "receives that fail, and the bytes for the READs",
		Defects: []string{"InvalidateAnything"},
		Run: onSides(func(d *sides) {
			l := d.link(setup{})
			window := l.near.opens(l.near.window(verbs.MWType1), 256, 64)
			for _, k := range []struct {
				what string
				at   verbs.Remote
			}{{"a region", l.near.remote(256)}, {"a type 1 window", window}} {
				other := d.link(setup{})
				other.invalidatesNot(k.what, k.at.RKey)
				other.dropped()
				l.far.reads(k.at, l.near.mem.Buf[256:320])
			}
		}),
	},
	{
		ID:    "verbs/mw/free-window-not-invalidated",
		Title: "A type 2 window that is not bound cannot be invalidated, which does no harm to others",
		Cite:  manual("", "verbs/mw/16"), Level: conformance.Must, Needs: needsSendInv, Labels: []string{conformance.Dangerous},
		Sends:   "a SEND that invalidates a window which was never bound; a bind of it over another queue pair, and a READ through it",
		Expects: "a receive that fails, and the bytes for the READ",
		Defects: []string{"UnboundInvalidate"},
		Run: onSides(func(d *sides) {
			l, other := d.link(setup{}), d.link(setup{})
			mw := l.near.window(verbs.MWType2)
			l.invalidatesNot("a window that is not bound", mw.RKey())
			l.dropped()
			other.far.reads(other.near.opens(mw, 256, 64), other.near.mem.Buf[256:320])
		}),
	},
})

// invalidatesNot ends the case unless the receive of a message fails that is to
// invalidate a key which it cannot. What becomes of the request is for the transport to
// say: over InfiniBand's nobody answers it, over others it may have completed.
func (l *link) invalidatesNot(what string, key verbs.RKey) {
	const recv, send = 31, 32
	l.near.recv(recv, toOff, 64)
	wr := l.far.sendWR(send, 0, 16)
	wr.Opcode, wr.InvalidateRKey = verbs.OpSendInv, key
	l.far.PostSend(l.far.qp, wr)
	wc := l.near.NextCompletion()
	l.near.Check(wc.WRID == recv && wc.Status != verbs.WCSuccess, fmt.Sprintf("a receive that fails: %s (%#x) cannot be invalidated", what, key), "%s", rig.Describe(&wc))
}

// dropped takes the far end's queue pair away, and with it what it would still complete.
func (l *link) dropped() {
	l.far.toState(reset)
	for {
		if _, ok := l.far.PollCompletion(soon); !ok {
			return
		}
	}
}
