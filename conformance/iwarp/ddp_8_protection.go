package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// otherPDMemory registers memory in a second protection domain.
func (h *host) otherPDMemory(access verbs.Access) *rig.Memory {
	pd, err := h.Device.AllocPD()
	h.Must("a second protection domain", err)
	return h.MemoryIn(pd, 64, access|verbs.AccessLocalWrite)
}

// foreignKeyCauses are the valid causes for a Write with an STag of another stream or
// protection domain.
var foreignKeyCauses = []iwarp.Cause{iwarp.DDPTaggedSTagNotAssociated, iwarp.DDPTaggedInvalidSTag}

var ddpProtectionCases = []conformance.Case{{
	ID: "ddp/protection/key-of-another-domain", Cite: cite("rfc5041/8.2/1"),
	Title:   "Memory of another protection domain cannot be written",
	Sends:   "a Write to memory of another domain than the stream's",
	Expects: "a Terminate, the application is notified, and memory unchanged",
	Defects: []string{"IgnorePD"}, Run: onConn(func(c *conn) {
		m := c.otherPDMemory(allAccess)
		c.expectRefusal(writeTo(addrOf(m, 0), data(16)), foreignKeyCauses...)
		c.ExpectUnchanged(m, 0, 0)
		c.expectDisconnect()
	}),
}, {
	ID: "ddp/protection/window-of-another-stream", Cite: cite("rfc5041/8.2/2", "rfc5042/6.1.1/2"),
	Needs:   verbs.CapMWType2,
	Title:   "A window bound to one stream is not accessible from another",
	Sends:   "a Write to a window on the stream it is bound to, and one on another stream of the same domain",
	Expects: "the first is placed; the second ends its stream, and no octet changes",
	Defects: []string{"WindowOwner"}, Run: onHost(func(h *host) {
		mine, other, m := h.connect(setup{}), h.connect(setup{}), h.bindableMemory(64)
		at := iwarp.At(mine.bindWindow(m, 0, 64, verbs.AccessRemoteWrite), m.Addr())
		mine.sendAndSync(writeTo(at, data(16)))
		h.ExpectBytes(m, 0, data(16))
		m.Snapshot()
		other.expectRefusal(writeTo(at, data(32)), foreignKeyCauses...)
		h.ExpectUnchanged(m, 0, 0)
		mine.sync()
	}),
}, {
	ID: "ddp/protection/closed-region", Cite: cite("rfc5041/8.3.1/1"),
	Title:   "A deregistered region cannot be written",
	Sends:   "a Write to a region, and another after it was deregistered",
	Expects: "the first is placed; the second ends the stream, and no octet changes",
	Defects: []string{"StaleKeys"}, Run: onConn(func(c *conn) {
		m := c.Memory(64, allAccess)
		at := addrOf(m, 0)
		c.sendAndSync(writeTo(at, data(16)))
		c.ExpectBytes(m, 0, data(16))
		m.Snapshot()
		c.Must("a region that can be deregistered", m.Close())
		c.expectRefusal(writeTo(at, data(32)), iwarp.DDPTaggedInvalidSTag)
		c.ExpectUnchanged(m, 0, 0)
	}),
}, {
	ID: "ddp/protection/invalidated-window", Cite: cite("rfc5041/8.3.1/1", "rfc5040/5.3/8"),
	Needs:   verbs.CapMWType2 | verbs.CapSendInv,
	Title:   "An invalidated window cannot be written",
	Sends:   "a Write to a window, a Send that invalidates it, and another Write",
	Expects: "the second Write ends the stream, and no octet changes",
	Defects: []string{"InvalidateIgnored"}, Run: onConn(func(c *conn) {
		m := c.bindableMemory(64)
		at := iwarp.At(c.bindWindow(m, 0, 64, verbs.AccessRemoteWrite), m.Addr())
		c.send(writeTo(at, data(16)), iwarp.SendInvalidate(c.nextSendMSN(), at.STag, data(16)))
		c.ExpectRecv(1, 16)
		c.ExpectBytes(m, 0, data(16))
		m.Snapshot()
		c.expectRefusal(writeTo(at, data(32)), foreignKeyCauses...)
		c.ExpectUnchanged(m, 0, 0)
	}),
}}
