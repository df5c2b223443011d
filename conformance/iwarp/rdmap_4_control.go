package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// rdmapControlOctets are the RDMAP control octets that devices send: version 1, two reserved
// bits, the opcode.
var rdmapControlOctets = map[byte]string{
	0x40: "Write", 0x41: "Read Request", 0x42: "Read Response", 0x43: "Send", 0x44: "Send with Invalidate",
	0x45: "Send with solicited event", 0x4a: "Atomic Request",
}

var rdmapControlCases = []conformance.Case{{
	ID: "rdmap/header/queue-of-each-opcode", Cite: cite("rfc5040/3.1/1", "rfc5040/5.3/1", "rfc5040/5.2.1/1"),
	Title:   "Sends go to queue 0, Read and Atomic Requests to queue 1",
	Sends:   "a Read Request; the device sends a message of every kind",
	Expects: "the queue of the opcode",
	Defects: []string{"QueuesMixed"}, Run: onConn(func(c *conn) {
		for _, g := range c.exchangeAllKinds() {
			if !g.Op().Tagged() {
				c.checkFPDU(iwarp.Op(g.Op()).QN(g.Op().Queue()), g)
			}
		}
	}),
}, {
	ID: "rdmap/header/control-octet", Cite: cite("rfc5040/4.1/1"),
	Title:   "The RDMAP control octet has two bits of version, two reserved bits and the opcode",
	Sends:   "a Read Request; the device sends a message of every kind",
	Expects: "the octets 40 to 45 and 4a, as the kind of the message requires",
	Defects: []string{"RDMAPVersion0"}, Run: onConn(func(c *conn) {
		seen := make(map[byte]bool)
		for _, g := range c.exchangeAllKinds() {
			c.Check(rdmapControlOctets[g.ULPDU[1]] != "", "a valid RDMAP control octet", "% x", head(g.ULPDU))
			seen[g.ULPDU[1]] = true
		}
		for _, b := range []byte{0x40, 0x41, 0x42, 0x43, 0x45} {
			c.Check(seen[b], fmt.Sprintf("%s with the octet %02x", rdmapControlOctets[b], b), "no such message")
		}
	}),
}, {
	ID: "rdmap/header/write-without-tagged-flag", Cite: cite("rfc5040/4.1/2", "rfc5041/4.1/2"),
	Title:   "A Write with T clear is not executed",
	Sends:   "a Write with T clear, otherwise valid",
	Expects: "the end of the stream, and memory unchanged",
	Defects: []string{"TaggedFlagIgnored"}, Run: onConn(func(c *conn) {
		c.expectAbortBy(c.peerWrite(0, data(16)).Tagged(false))
		c.ExpectUnchanged(c.targetMem, 0, 0)
	}),
}, {
	ID: "rdmap/header/version-is-one", Cite: cite("rfc5040/4.1/3"),
	Title:   "RDMAP's version is 1 in every message",
	Sends:   "a Read Request, and an invalid Write; the device sends a message of every kind",
	Expects: "version 1 in each, the Terminate included",
	Defects: []string{"RDMAPVersion0"}, Run: onConn(func(c *conn) {
		all := c.exchangeAllKinds()
		c.send(iwarp.Write(unknownSTag, 0, data(16)))
		for _, g := range append(all, c.nextFPDUs(1)...) {
			c.checkFPDU(iwarp.Op(g.Op()).RV(1), g)
		}
	}),
}, {
	ID: "rdmap/header/reserved-bits-are-ignored", Cite: cite("rfc5040/4.1/4"),
	Title:   "The reserved bits of the RDMAP control octet are ignored",
	Sends:   "a Send, a Write, a Read Request and a Read Response with both reserved bits set",
	Expects: "each is accepted",
	Defects: []string{"ReservedBitsChecked"}, Run: onConn(func(c *conn) {
		c.expectAcceptedWith(func(s iwarp.Segment) iwarp.Segment { return s.RDMAPReserved(3) })
	}),
}, {
	ID: "rdmap/header/reserved-bits-are-zero", Cite: cite("rfc5040/4.1/4"),
	Title:   "The reserved bits of the RDMAP control octet are sent as zeros",
	Sends:   "a Read Request; the device sends a message of every kind",
	Expects: "zeros in the two bits of each",
	Defects: []string{"UnusedFieldsStale"}, Run: onConn(func(c *conn) {
		for _, g := range c.exchangeAllKinds() {
			c.Check(g.ULPDU[1]&0x30 == 0, fmt.Sprintf("%v without reserved bits", g.Op()), "% x", head(g.ULPDU))
		}
	}),
}, {
	ID: "rdmap/header/invalidate-field-is-zero", Cite: cite("rfc5040/4.1/5"),
	Title:   "The Invalidate STag field is zero in messages that invalidate nothing",
	Sends:   "nothing: the device sends a message of every kind",
	Expects: "four zeros in untagged messages other than Sends with Invalidate, which have their STag there",
	Defects: []string{"UnusedFieldsStale"}, Run: onConn(func(c *conn) {
		for _, g := range c.exchangeAllKinds() {
			switch op := g.Op(); {
			case op.Tagged():
			case op == iwarp.OpSendInvalidate || op == iwarp.OpSendSEInvalidate:
				c.checkFPDU(iwarp.Op(op).InvalidateSTag(peerSTag), g)
			default:
				c.checkFPDU(iwarp.Op(op).InvalidateSTag(0), g)
			}
		}
	}),
}, {
	ID: "rdmap/header/invalidate-field-of-a-plain-send-is-ignored", Cite: cite("rfc5040/4.1/5"),
	Needs:   verbs.CapMWType2 | verbs.CapSendInv,
	Title:   "A Send without Invalidate does not invalidate the STag in its header",
	Sends:   "a Send, a Send with solicited event and a Read Request with the STag of a window in the Invalidate STag field, and a Write to the window",
	Expects: "each is accepted, and the window stays valid",
	Defects: []string{"AnySendInvalidates"}, Run: onConn(func(c *conn) {
		m := c.bindableMemory(64)
		at := iwarp.At(c.bindWindow(m, 0, 64, verbs.AccessRemoteWrite), m.Addr())
		c.send(iwarp.Send(c.nextSendMSN(), data(16)).InvalidateSTag(at.STag))
		c.send(iwarp.SendSE(c.nextSendMSN(), data(16)).InvalidateSTag(at.STag))
		for id := range uint64(2) {
			wc := c.ExpectRecv(id+1, 16)
			c.Check(wc.Flags&verbs.WCWithInv == 0, "a receive without an invalidated key", "one with WC_WITH_INV")
		}
		c.expectAnswer(c.peerRead(0, 16).InvalidateSTag(at.STag), iwarp.Op(iwarp.OpReadResponse))
		c.sendAndSync(writeTo(at, data(32)))
		c.ExpectBytes(m, 0, data(32))
	}),
}}
