package iwarp

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// privateDataParam returns connection parameters with private data.
func privateDataParam(b []byte) *verbs.ConnParam {
	return &verbs.ConnParam{PrivateData: b, ResponderResources: defaultOrd, InitiatorDepth: defaultOrd}
}

// checkPrivateData fails the case unless a start-up frame of the device has the private data and
// its length. PD_Length includes the enhanced data.
func (c *conn) checkPrivateData(f startupFrame, want []byte) {
	n := len(want)
	if iwarp.Val(f.S) {
		n += 4
	}
	got := int(iwarp.Val(f.PDLength))
	c.Check(got == n, fmt.Sprintf("a PD_Length of %d", n), "%d in %v", got, f)
	c.Check(bytes.Equal(f.PrivateData, want), fmt.Sprintf("the %d octets of private data", len(want)), "%d: % x", len(f.PrivateData), head(f.PrivateData))
}

// onPrivateData makes the body of a case in which the application connects or accepts with
// private data of each length.
func onPrivateData(active bool, lengths ...int) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, n := range lengths {
			hs := h.startHandshake(setup{active: active, connParams: privateDataParam(data(n))})
			hs.exchangeFrames()
			hs.checkPrivateData(hs.gotFrame, data(n))
			hs.establish()
		}
	})
}

// checkRequestPrivateData fails the case unless the application got the private data.
func (h *host) checkRequestPrivateData(got, want []byte) {
	h.Check(bytes.Equal(got, want), fmt.Sprintf("%d octets of private data for the application", len(want)), "%d: % x", len(got), head(got))
}

var mpaPrivateCases = []conformance.Case{{
	ID: "mpa/private/length-is-that-of-the-data", Cite: cite("rfc5044/7.1.1/12"),
	Title:   "PD_Length is the length of all private data, enhanced data included",
	Sends:   "Replies; the device connects with 1, 16 and 100 octets of private data",
	Expects: "Requests with the data and its length",
	Defects: []string{"EnhancedUncounted"}, Run: onPrivateData(true, 1, 16, 100),
}, {
	ID: "mpa/private/length-of-252-octets", Cite: cite("rfc5044/7.1.1/12"),
	Title:   "PD_Length is correct for lengths around 256",
	Sends:   "Replies; the device connects with 251, 252, 253 and 256 octets of private data",
	Expects: "Requests with the data and its length",
	Defects: []string{"LengthWraps"}, Run: onPrivateData(true, 251, 252, 253, 256),
}, {
	ID: "mpa/private/length-of-a-reply", Cite: cite("rfc5044/7.1.1/12"),
	Title:   "PD_Length of a Reply is the length of its private data",
	Sends:   "Requests; the device accepts with 1, 16, 251, 252 and 256 octets of private data",
	Expects: "Replies with the data and its length",
	Defects: []string{"LengthWraps"}, Run: onPrivateData(false, 1, 16, 251, 252, 256),
}, {
	ID: "mpa/private/above-512-closes", Cite: cite("rfc5044/7.1.1/13"),
	Title:   "A Request with more than 512 octets of private data ends the stream",
	Sends:   "Requests with 513, 600 and 1024 octets of private data",
	Expects: "the end of the stream without a Reply, and no connection request",
	Defects: []string{"LongPrivateDataTaken"},
	Run:     onInvalidRequests(revision1Request().Private(data(513)), revision1Request().Private(data(600)), revision1Request().Private(data(1024))),
}, {
	ID: "mpa/private/512-in-a-request", Cite: cite("rfc5044/7.1.1/14"),
	Title:   "A Request may have 512 octets of private data",
	Sends:   "a Request of revision 1 with 512 octets, and an enhanced one with 508 octets after the enhanced data",
	Expects: "the application gets the data, and connections are established",
	Defects: []string{"PrivateData256"}, Run: onHost(func(h *host) {
		for _, f := range []startupFrame{revision1Request().Private(data(512)), enhancedRequest().Private(data(508))} {
			hs := h.sendRequest(setup{}, f)
			hs.establishAfter(iwarp.Reply().Reject(false))
			h.checkRequestPrivateData(hs.requestParam.PrivateData, f.PrivateData)
		}
	}),
}, {
	ID: "mpa/private/512-in-a-reply", Cite: cite("rfc5044/7.1.1/14", "rfc5042/x/1"),
	Labels:  []string{conformance.Dangerous},
	Title:   "A Reply may have 512 octets of private data",
	Sends:   "a Reply with 512 octets of private data, enhanced data included",
	Expects: "a connection, and the application gets the data",
	Defects: []string{"PrivateData256", "BadReplyHangs"}, Run: onActive(setup{}, func(hs *handshake) {
		n := 512
		if iwarp.Val(hs.recvFrame().S) {
			n -= 4
		}
		hs.sendReply(func(f startupFrame) startupFrame { return f.Private(data(n)) })
		hs.checkRequestPrivateData(hs.establish().deviceConn.Param().PrivateData, data(n))
	}),
}, {
	ID: "mpa/private/more-than-was-announced", Cite: cite("rfc5044/7.1.2/14"),
	Title:   "Octets after the private data of a Request are not part of it",
	Sends:   "a Request with 8 octets of private data, and 56 more after them in the same segment",
	Expects: "the end of the stream, or the application gets 8 octets",
	Defects: []string{"PrivateDataOverrun"}, Run: onHost(func(h *host) {
		l := h.listen()
		c := h.dialAndSend(l, revision1Request().Private(data(64)).PrivateLength(8).Append(nil))
		r, err := l.GetRequest(belowStartupTimer)
		if err == nil {
			h.checkRequestPrivateData(r.Param().PrivateData, data(8))
			h.Must("a request that can be rejected", ignoreClosed(r.Reject(nil)))
			return
		}
		h.Check(errors.Is(err, verbs.ErrTimeout), "a listener that still works", "%v", err)
		c.expectEnd()
	}),
}, {
	ID: "mpa/private/none-is-none", Cite: cite("rfc5044/7.1.1/12", "rfc5044/7.1.1/14"),
	Title:   "Without private data PD_Length is 0, or 4 with enhanced data, and the application gets none",
	Sends:   "a Reply, and Requests of both revisions, without private data",
	Expects: "frames without private data, and the application gets none",
	Defects: []string{"EnhancedUncounted"}, Run: onHost(func(h *host) {
		hs := h.startActive(setup{})
		hs.checkPrivateData(hs.recvFrame(), nil)
		h.checkRequestPrivateData(hs.establishWithReply(nil).deviceConn.Param().PrivateData, nil)
		for _, f := range []startupFrame{revision1Request(), enhancedRequest()} {
			hs := h.sendRequest(setup{}, f)
			hs.checkPrivateData(hs.recvFrame(), nil)
			hs.establish()
			h.checkRequestPrivateData(hs.requestParam.PrivateData, nil)
		}
	}),
}}

// ignoreClosed returns err, or nil if the connection has ended meanwhile.
func ignoreClosed(err error) error {
	if errors.Is(err, verbs.ErrClosed) || errors.Is(err, verbs.ErrRejected) || errors.Is(err, verbs.ErrInvalid) {
		return nil
	}
	return err
}
