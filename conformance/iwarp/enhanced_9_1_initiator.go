package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// heardEnhanced returns the enhanced data of the device's Request.
func (st *start) heardEnhanced() iwarp.Enhanced {
	if st.hear(); st.got.Enhanced == nil {
		rig.NotApplicable("the device's Request is not enhanced")
	}
	return *st.got.Enhanced
}

// tooMuch is a depth that no device has.
const tooMuch = 16382

// tooMany answers a Request with an ORD for which no device has the places.
func (st *start) tooMany() *conn {
	st.heardEnhanced()
	st.reply(func(f startup) startup { return f.Depths(defaultOrd, tooMuch) })
	return st.full()
}

// offered are the kinds of RTR that enhanced data names.
func offered(e iwarp.Enhanced) (r iwarp.RTR) {
	f := flagsOf(e)
	for kind, set := range map[iwarp.RTR]bool{iwarp.RTRSend: f.b, iwarp.RTRWrite: f.c, iwarp.RTRRead: f.d} {
		if set {
			r |= kind
		}
	}
	return r
}

// nothingInCommon answers a Request with kinds of RTR that it does not name.
func (st *start) nothingInCommon() *conn {
	e := st.heardEnhanced()
	if !iwarp.Val(e.PeerToPeer) {
		rig.NotApplicable("the device does not ask for the peer-to-peer model")
	}
	st.reply(func(f startup) startup { return f.PeerToPeer(anyRTR &^ offered(e)) })
	return st.full()
}

var enhancedInitiatorCases = []conformance.Case{
	{
		ID:    "enhanced/depth/reply-limits-reads",
		Title: "An initiator has no more reads under way than the Reply has places for",
		Cite:  cite(rfc6581, "9.1", "rfc6581/9.1/6"), Level: conformance.Must, Needs: needed,
		Sends:   "Replies with IRD 1 and 2; the device posts eight reads",
		Expects: "one, and two, Read Requests until the first is answered",
		Defects: []string{"ReplyDepthsIgnored"},
		Run: onHost(func(h *host) {
			for _, ird := range []uint16{1, 2} {
				st := h.connecting(setup{})
				st.heardEnhanced()
				st.reply(func(f startup) startup { return f.Depths(ird, 0) })
				st.full().takeRTR()
				st.connected().readsUnderWay(8, int(ird))
			}
		}),
	},
	{
		ID:    "enhanced/depth/too-few-places-is-terminated",
		Title: "An initiator that has not the places that the Reply wants says so, and ends",
		Cite:  cite(rfc6581, "9.1", "rfc6581/9.1/7", "rfc6581/8/1"), Level: conformance.Must, Needs: needed,
		Sends:   "a Reply with ORD 16382",
		Expects: "a Terminate for an insufficient IRD, the end of the stream, and a connect that fails",
		Defects: []string{"ReplyDepthsIgnored", "ErrorResets"},
		Run: onConnecting(setup{}, func(st *start) {
			c := st.tooMany()
			c.defects = true // that the Terminate has the CRC which the Reply asked for, the next case says
			c.terminated(iwarp.MPAInsufficientIRD)
			st.fails()
		}),
	},
	{
		ID:    "enhanced/depth/errors-are-of-layer-2",
		Title: "Errors of enhanced start-up are of layer 2, type 0, with their codes",
		Cite:  cite(rfc6581, "8", "rfc6581/8/1", "rfc5044/7.1.1/7"), Level: conformance.Must, Needs: needed,
		Sends:   "a Reply with ORD 16382, and one without a common RTR",
		Expects: "Terminates that begin with the octets 20 06 and 20 07, quote nothing, and have the CRC that the Reply asked for",
		Defects: []string{"MPAErrorType"},
		Run: onHost(func(h *host) {
			st := h.connecting(setup{})
			st.tooMany().expect(iwarp.Terminate(iwarp.MPAInsufficientIRD).QuotingNothing())
			st.fails()
			st = h.connecting(setup{})
			st.nothingInCommon().expect(iwarp.Terminate(iwarp.MPANoMatchingRTR).QuotingNothing())
			st.fails()
		}),
	},
	{
		ID:    "enhanced/depth/reply-reaches-the-program",
		Title: "A program is shown IRD and ORD of the Reply",
		Cite:  cite(rfc6581, "9.1", "rfc6581/9.1/8"), Level: conformance.Must, Needs: needed,
		Sends:   "a Reply with IRD 3 and ORD 5",
		Expects: "a program that is shown 3 and 5",
		Defects: []string{"OwnDepthsReported"},
		Run: onConnecting(setup{}, func(st *start) {
			st.heardEnhanced()
			st.reply(func(f startup) startup { return f.Depths(3, 5) })
			st.full().takeRTR()
			st.depthsShown(st.connected().cm.Param(), 3, 5)
		}),
	},
	{
		ID:    "enhanced/depth/reply-leaves-it-open",
		Title: "A depth that a Reply leaves open changes nothing for the initiator",
		Cite:  cite(rfc6581, "9.1", "rfc6581/9.1/10"), Level: conformance.Must, Needs: needed,
		Sends:   "a Reply with IRD and ORD of 3fff; the device, which wants four, posts eight reads",
		Expects: "a connection with at most four reads under way",
		Defects: []string{"DepthsAlwaysCount"},
		Run: onConnecting(setup{param: depths(4, 4)}, func(st *start) {
			st.heardEnhanced()
			st.reply(func(f startup) startup { return f.Depths(iwarp.NoNegotiation, iwarp.NoNegotiation) })
			st.full().takeRTR()
			c := st.connected()
			c.readsUnderWay(8, 4)
			c.fence()
		}),
	},
	{
		ID:    "enhanced/start/local-failure-is-said",
		Title: "An initiator whose side fails during start-up says so before it ends",
		Cite:  cite(rfc6581, "9.3", "rfc6581/9.3/1"), Level: conformance.Must, Needs: needed,
		Sends:   "a Reply, after the device's program has put the queue pair into the error state",
		Expects: "a Terminate for a local failure, the end of the stream, and a connect that fails",
		Defects: []string{"NoStartupTerminate"},
		Run: onConnecting(setup{}, func(st *start) {
			st.heardEnhanced()
			st.Must("a queue pair in ERR", st.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
			st.reply(nil)
			st.full().terminated(iwarp.MPAStartupCatastrophic)
			st.fails()
		}),
	},
}

// rtrs are the kinds of RTR, and what each is on the wire.
var rtrs = []struct {
	kind iwarp.RTR
	name string
	want iwarp.Segment
}{
	{iwarp.RTRWrite, "Write", iwarp.Op(iwarp.OpWrite).WithPayload(nil)},
	{iwarp.RTRRead, "Read", iwarp.Op(iwarp.OpReadRequest).MSN(1).EditRead(func(h *iwarp.ReadRequestHeader) { h.Size = new(uint32(0)) })},
	{iwarp.RTRSend, "Send", iwarp.Send(1, nil)},
}

// agreeOn has the peer agree on one kind of RTR only; false if the device does not
// offer it.
func (st *start) agreeOn(kind iwarp.RTR) bool {
	e := st.heardEnhanced()
	if !iwarp.Val(e.PeerToPeer) {
		rig.NotApplicable("the device does not ask for the peer-to-peer model")
	}
	ok := offered(e)&kind != 0
	st.reply(func(f startup) startup {
		if !ok {
			return f.Reject(true)
		}
		return f.PeerToPeer(kind)
	})
	if !ok {
		st.fails()
	}
	return ok
}

// onAgreed makes a case of a body that begins where the device has sent the RTR that
// was agreed on; where it does not offer it, the case has nothing to say.
func onAgreed(kind iwarp.RTR, body func(c *conn, rtr iwarp.ReceivedFPDU)) func(*conformance.Bench) error {
	return onConnecting(setup{}, func(st *start) {
		if !st.agreeOn(kind) {
			rig.NotApplicable(fmt.Sprintf("the device does not offer RTR %d", kind))
		}
		c := st.full()
		g := c.expect(iwarp.Any())
		if kind == iwarp.RTRRead {
			c.send(iwarp.ReadResponseTo(g.Segment, nil))
		}
		st.connected()
		body(c, g)
	})
}
