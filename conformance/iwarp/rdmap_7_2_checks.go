package iwarp

import (
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var rdmapCheckCases = []conformance.Case{{
	ID: "rdmap/check/opcode", Cite: cite("rfc5040/7.2/1"),
	Title:   "A message with an unassigned opcode ends the stream",
	Sends:   "a Send and a Write with opcode 13",
	Expects: "a Terminate: unexpected opcode, and no receive",
	Defects: []string{"BadSegmentsDropped"}, Run: onEachRefused([]iwarp.Cause{iwarp.RDMAPUnexpectedOpcode},
		func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSendMSN(), data(16)).Opcode(13) },
		func(c *conn) iwarp.Segment { return c.peerWrite(0, data(16)).Opcode(13) }),
}, {
	ID: "rdmap/check/version", Cite: cite("rfc5040/7.2/2"),
	Title:   "A message with another RDMAP version ends the stream",
	Sends:   "Sends and Read Requests with RDMAP versions 0, 2 and 3",
	Expects: "a Terminate: invalid version, no receive and no Read Response",
	Defects: []string{"VersionsUnchecked"}, Run: onHost(func(h *host) {
		for _, v := range []uint8{0, 2, 3} {
			h.expectEachRefused([]iwarp.Cause{iwarp.RDMAPInvalidVersion},
				func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSendMSN(), data(16)).RV(v) },
				func(c *conn) iwarp.Segment { return c.peerRead(0, 16).RV(v) })
		}
	}),
}, {
	ID: "rdmap/check/version-of-a-tagged-message", Cite: cite("rfc5040/7.2/2"),
	Title:   "A Write or a Read Response with another RDMAP version ends the stream",
	Sends:   "Writes, and Read Responses to reads of the device, with RDMAP versions 0, 2 and 3",
	Expects: "a Terminate: invalid version; nothing is placed, and the reads fail",
	Defects: []string{"TaggedVersionUnchecked"}, Run: onHost(func(h *host) {
		for _, v := range []uint8{0, 2, 3} {
			h.expectEachRefused([]iwarp.Cause{iwarp.RDMAPInvalidVersion}, func(c *conn) iwarp.Segment { return c.peerWrite(0, data(16)).RV(v) })
			h.expectResponseRefused(iwarp.RDMAPInvalidVersion, func(s iwarp.Segment) iwarp.Segment { return s.RV(v) })
		}
	}),
}, {
	ID: "rdmap/check/version-of-every-kind", Cite: cite("rfc5040/7.2/2", "rfc7306/8.2/1"),
	Title:   "A message of any kind with another RDMAP version ends the stream",
	Sends:   "each kind of message with RDMAP versions 0, 2 and 3",
	Expects: "a Terminate: invalid version; no effect",
	Defects: []string{"VersionsUnchecked", "TaggedVersionUnchecked", "SolicitedVersionUnchecked"}, Run: onHost(func(h *host) {
		for _, k := range h.kinds() {
			for _, v := range []uint8{0, 2, 3} {
				h.expectKindRefused(k, func(s iwarp.Segment) iwarp.Segment { return s.RV(v) }, iwarp.RDMAPInvalidVersion)
			}
		}
	}),
}, {
	ID: "rdmap/resource/keys-do-not-count", Cite: cite("rfc5040/8.1.1/1"),
	Title: "The keys of memory regions cannot be predicted from earlier ones",
	Sends: "nothing: the application registers a hundred regions, then a hundred more, each deregistered before the next; " +
		"the device is closed and opened, and both are done again",
	Expects: "keys that neither ascend nor descend, no fixed step from a key to the next, nor to one up to ten later, and others when the device was opened again",
	Defects: []string{"KeysCount", "KeysStride", "KeysReused", "KeysRepeat"}, Run: onHost(func(h *host) {
		first := h.collectKeys()
		if h.Reopen == nil {
			rig.BenchCannot("reopen the device")
		}
		h.Must("a device that can be reopened", h.Reopen())
		h.Rig = rig.New(h.Bench)
		again, same := h.collectKeys(), 0
		for i := range first {
			if first[i] == again[i] {
				same++
			}
		}
		h.Check(same < len(first)/4, "other keys after the device is reopened", "%d of %d are the same", same, len(first))
	}),
}}

// collectKeys returns the keys of regions that stay registered, and of regions that are
// deregistered at once. It fails the case if either are predictable.
func (h *host) collectKeys() (all []verbs.RKey) {
	for _, keep := range []bool{true, false} {
		keys := make([]verbs.RKey, 100)
		for i := range keys {
			m := h.Memory(64, allAccess)
			keys[i] = m.RKey()
			if !keep {
				h.Must("a region that can be deregistered", m.MR.Close())
			}
		}
		h.expectUnpredictable(keys)
		all = append(all, keys...)
	}
	return all
}

// expectUnpredictable fails the case if keys ascend or descend, or if many of them have the same
// difference to an earlier key.
func (h *host) expectUnpredictable(keys []verbs.RKey) {
	h.Check(!slices.IsSorted(keys), "keys in no order", "%d keys that ascend", len(keys))
	down := slices.Clone(keys)
	slices.Reverse(down)
	h.Check(!slices.IsSorted(down), "keys in no order", "%d keys that descend", len(keys))
	for lag := 1; lag <= 10; lag++ {
		steps := make(map[verbs.RKey]int)
		for i := lag; i < len(keys); i++ {
			step := keys[i] - keys[i-lag]
			steps[step]++
			h.Check(steps[step] < len(keys)/4, "keys at different distances",
				"%d of %d have a difference of %#x to the key %d before, as in %#x", steps[step], len(keys)-lag, uint32(step), lag, keys[:4])
		}
	}
}

var registryCases = []conformance.Case{{
	ID: "rdmap/registry/any-code-of-a-local-catastrophe", Cite: cite("rfc6580/3.1/1"),
	Title:   "A Terminate for a local catastrophic error ends the stream, whatever its code",
	Sends:   "Terminates of layer 0, type 0, with the codes 00, 01, 77 and ff, each on a separate connection",
	Expects: "the end of the stream without a message, the application is notified, and a receive that fails",
	Defects: []string{"StrangeTerminateIgnored"},
	Run: onEachConn(setup{receives: 1}, []uint8{0x00, 0x01, 0x77, 0xff}, func(c *conn, code uint8) {
		c.send(iwarp.Terminate(iwarp.RDMAPCatastrophic | iwarp.Cause(code)))
		c.expectEnd()
		c.expectDisconnect()
		c.expectFailure(1)
	}),
}, {
	ID: "rdmap/registry/mpa-errors-are-of-type-zero", Cite: cite("rfc6580/3.3/1"),
	Title:   "An MPA error has layer 2, type 0",
	Sends:   "a Write with a wrong CRC",
	Expects: "a Terminate that begins with the octets 20 02, and quotes nothing",
	Defects: []string{"MPAErrorType"}, Run: onConn(func(c *conn) {
		c.expectAnswer(c.peerWrite(0, data(64)).BadCRC(), iwarp.Terminate(iwarp.MPACRC).QuotingNothing())
	}),
}, {
	ID: "rdmap/registry/unassigned-opcodes", Cite: cite("rfc6580/3.4/1", "rfc5040/7.2/1"),
	Title:   "Unassigned opcodes are reported as unexpected",
	Sends:   "messages with the opcodes 12, 13, 14 and 15, untagged and tagged, each on a separate connection",
	Expects: "a Terminate for an unexpected opcode each, memory unchanged, and a receive that fails",
	Defects: []string{"OpcodeMasked"}, Run: onEachConn(setup{receives: 1}, []iwarp.Opcode{12, 13, 14, 15}, func(c *conn, op iwarp.Opcode) {
		c.Note("opcode %d", op)
		c.expectRefusal(iwarp.Op(op).QN(0).MSN(c.nextSendMSN()).WithPayload(data(16)), iwarp.RDMAPUnexpectedOpcode)
		c.expectFailure(1)
		c = c.connect(setup{})
		c.expectRefusalWithoutEffect(c.peerWrite(0, data(16)).Opcode(op), iwarp.RDMAPUnexpectedOpcode)
	}),
}}
