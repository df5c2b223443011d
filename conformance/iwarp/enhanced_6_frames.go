package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// properRevision ends the case if a frame has enhanced data and a revision that has
// none.
func (st *start) properRevision(f startup) {
	st.Check(!iwarp.Val(f.S) || iwarp.Val(f.Rev) >= 2, "revision 2 in a frame with S set", "%v", f)
}

// short are frames with S set and fewer octets than that needs.
func short(f startup, n int) startup { return f.Revision(2).SFlag(true).Private(data(n)) }

var enhancedFrameCases = []conformance.Case{
	{
		ID:    "enhanced/frame/needs-revision-2",
		Title: "Enhanced data comes with revision 2 only",
		Cite:  cite(rfc6581, "6", "rfc6581/6/1"), Level: conformance.Must, Needs: needed,
		Sends:   "Requests of both revisions; hangs up on the device's own Request, too, in case it tries revision 1 then",
		Expects: "S set with revision 2 only",
		Defects: []string{"EnhancedRevision1"},
		Run: onHost(func(h *host) {
			for _, f := range []startup{plain(), request()} {
				st := h.listening(setup{})
				st.say(f)
				st.properRevision(st.hear())
				st.full().sendRTR()
				st.connected()
			}
			st := h.connectingTo(setup{})
			st.properRevision(st.hear())
			if st.again() {
				st.properRevision(st.hear())
				st.reset()
			}
			st.fails()
		}),
	},
	{
		ID:    "enhanced/frame/flag-means-nothing-in-revision-1",
		Title: "In revision 1 the S flag is a reserved one: not looked at, and zero in the Reply",
		Cite:  cite(rfc6581, "6", "rfc6581/6/1", "rfc5044/7.1.1/9"), Level: conformance.Must, Needs: needed,
		Sends:   "a Request of revision 1 with S set and eight octets of private data",
		Expects: "a Reply of revision 1 with S not set, and a program that is shown the eight octets",
		Defects: []string{"EchoesFlags"},
		Run: onListening(setup{}, func(st *start) {
			st.say(plain().SFlag(true).Private(data(8)))
			st.hears(iwarp.Reply().Revision(1).SFlag(false).PrivateLength(0))
			st.full().sendRTR()
			st.connected()
			st.shown(st.asked.PrivateData, data(8))
		}),
	},
	{
		ID:    "enhanced/frame/revision-1-is-taken",
		Title: "A Request of revision 1 is answered in revision 1",
		Cite:  cite(rfc6581, "6", "rfc6581/6/2", "rfc6581/10/1"), Level: conformance.Must, Needs: needed,
		Sends:   "a Request of revision 1",
		Expects: "a Reply of revision 1 with S not set, and a connection that works",
		Defects: []string{"DemandsRevision2"},
		Run: onListening(setup{}, func(st *start) {
			st.say(plain())
			st.hears(iwarp.Reply().Reject(false).Revision(1).SFlag(false))
			st.full().sendRTR()
			st.connected().works()
		}),
	},
	{
		ID:    "enhanced/frame/four-octets-are-counted",
		Title: "Enhanced data is the first four octets of private data, and PD_Length counts them",
		Cite:  cite(rfc6581, "6", "rfc6581/6/3"), Level: conformance.Must, Needs: needed,
		Sends:   "a Request with S set; the device accepts with twelve octets of private data",
		Expects: "a Reply with S set, PD_Length 16, four octets of enhanced data and those twelve",
		Defects: []string{"EnhancedUncounted"},
		Run: onListening(setup{param: private(data(12))}, func(st *start) {
			st.say(request())
			f := st.hears(iwarp.Reply().SFlag(true).PrivateLength(16).Private(data(12)))
			st.Check(f.Enhanced != nil, "enhanced data", "none")
			st.full().sendRTR()
			st.connected().works()
		}),
	},
	{
		ID:    "enhanced/frame/short-request",
		Title: "A Request with S set and fewer than four octets is refused",
		Cite:  cite(rfc6581, "6", "rfc6581/6/4"), Level: conformance.Must, Needs: needed,
		Sends:   "Requests of revision 2 with S set and 0 to 3 octets of private data",
		Expects: "a Reply with R set or none, the end of the stream, and no request for the program",
		Defects: []string{"ShortFramesTaken"},
		Run: onHost(func(h *host) {
			l := h.serve()
			for n := range 4 {
				st := &start{conn: h.knock(l, short(plain(), n).Append(nil))}
				if st.pull(h.ResponseTimeout()) {
					st.early = append(st.early, st.in.Pending()...)
					st.hears(iwarp.Reply().Reject(true))
					st.in = iwarp.Deframer{}
				}
				st.expectEnd()
				h.unasked(l)
			}
		}),
	},
	{
		ID:    "enhanced/frame/short-reply",
		Title: "A Reply with S set and fewer than four octets makes no connection, and does no harm",
		Cite:  cite(rfc6581, "6", "rfc6581/6/4", "rfc5042/x/1"), Level: conformance.Must, Needs: needed,
		Labels:  []string{conformance.Dangerous},
		Sends:   "Replies of revision 2 with S set and 0 to 3 octets of private data",
		Expects: "the end of the stream, and a connect that fails",
		Defects: []string{"BadReplyHangs"},
		Run: onBadReply(
			func(startup) startup { return short(iwarp.Reply(), 0) },
			func(startup) startup { return short(iwarp.Reply(), 1) },
			func(startup) startup { return short(iwarp.Reply(), 2) },
			func(startup) startup { return short(iwarp.Reply(), 3) },
		),
	},
	{
		ID:    "enhanced/frame/revision-2-without-the-flag",
		Title: "A Request of revision 2 with S not set is answered without enhanced data",
		Cite:  cite(rfc6581, "6", "rfc6581/6/5", "rfc6581/10/1"), Level: conformance.Must, Needs: needed,
		Sends:   "a Request of revision 2 with S not set and eight octets of private data",
		Expects: "a Reply with S not set and without private data; a program that is shown the eight octets",
		Defects: []string{"ForcesEnhanced"},
		Run: onListening(setup{}, func(st *start) {
			st.say(plain().Revision(2).Private(data(8)))
			st.hears(iwarp.Reply().Reject(false).SFlag(false).PrivateLength(0))
			st.full().sendRTR()
			st.connected().works()
			st.shown(st.asked.PrivateData, data(8))
		}),
	},
	{
		ID:    "enhanced/frame/depths-of-14-bits",
		Title: "The flags beside IRD and ORD are no part of them",
		Cite:  cite(rfc6581, "9", "rfc6581/9/1"), Level: conformance.Must, Needs: needed,
		Sends:   "a Request with IRD 5 and all flags, to a program that wants 16 reads under way; a Reply with IRD 2 and flag A",
		Expects: "a Reply with an ORD of at most 5; two Read Requests at a time",
		Defects: []string{"FlagsLeak"},
		Run: onHost(func(h *host) {
			c := h.connect(setup{frame: func(f startup) startup { return f.Depths(5, 6) }})
			ord := enhanced(c.device).ORD
			c.Check(iwarp.Val(ord) <= 5, "an ORD of at most 5", "%d", iwarp.Val(ord))
			c = h.connect(setup{active: true, frame: func(f startup) startup { return f.Depths(2, 0) }})
			if c.device.Enhanced == nil {
				rig.NotApplicable("the device's Request is not enhanced")
			}
			c.readsUnderWay(4, 2)
		}),
	},
	{
		ID:    "enhanced/frame/no-format-without-a-feature",
		Title: "A Request of revision 1 has no enhanced data before the program's",
		Cite:  cite(rfc6581, "10", "rfc6581/10/2", "rfc6581/6/1"), Level: conformance.Must, Needs: needed,
		Sends:   "hangs up on the device's Request; the device has eight octets of private data",
		Expects: "if it tries again, a Request of revision 1 with S not set and those eight octets only",
		Defects: []string{"EnhancedRevision1"},
		Run: onHost(func(h *host) {
			st := h.connectingTo(setup{param: private(data(8))})
			st.hear()
			if !st.again() {
				st.fails()
				rig.NotApplicable("the device does not fall back to revision 1")
			}
			st.hears(iwarp.Request().Revision(1).SFlag(false).PrivateLength(8).Private(data(8)))
			st.say(iwarp.Reply())
			st.full()
			st.connected()
		}),
	},
	{
		ID:    "enhanced/frame/fallback-to-revision-1",
		Title: "An initiator on whom a peer hangs up tries again in revision 1",
		Cite:  cite(rfc6581, "10", "rfc6581/10/3"), Level: conformance.May, Needs: needed,
		Sends:   "hangs up on the device's Request, and answers the next",
		Expects: "a Request of revision 1 on another stream, and a connection that works",
		Defects: []string{"NoFallback"},
		Run: onHost(func(h *host) {
			st := h.connectingTo(setup{})
			st.hears(iwarp.Request().Revision(2))
			st.Check(st.again(), "another Request", "none in %v", st.ResponseTimeout())
			st.hears(iwarp.Request().Revision(1))
			st.say(iwarp.Reply())
			st.full()
			st.connected().works()
		}),
	},
}

// enhanced is the enhanced data of a frame, or none of it.
func enhanced(f startup) iwarp.Enhanced {
	if f.Enhanced == nil {
		return iwarp.Enhanced{}
	}
	return *f.Enhanced
}

// readsUnderWay has the device's program post so many reads, and ends the case unless
// no more than limit of them are asked for before one is answered, and all of them in
// the end. It may ask for fewer at a time.
func (c *conn) readsUnderWay(posted, limit int) {
	for i := range posted {
		c.PostSend(c.qp, c.readWR(uint64(50+i), 8*i, 8))
	}
	asked := c.drain(quiet)
	c.Check(len(asked) > 0 && len(asked) <= limit, fmt.Sprintf("one to %d Read Requests", limit), "%d", len(asked))
	for i := range posted {
		if i == len(asked) {
			asked = append(asked, c.expect(iwarp.Op(iwarp.OpReadRequest)))
		}
		c.same(iwarp.Op(iwarp.OpReadRequest), asked[i])
		c.send(iwarp.ReadResponseTo(asked[i].Segment, data(8)))
		c.ExpectCompletion(uint64(50+i), verbs.WCSuccess)
		asked = append(asked, c.drain(0)...)
	}
}
