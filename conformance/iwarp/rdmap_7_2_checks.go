package iwarp

import (
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

var rdmapCheckCases = []conformance.Case{
	{
		ID:    "rdmap/check/opcode",
		Title: "A message with an opcode that there is not ends the stream",
		Cite:  cite(rfc5040, "7.2", "rfc5040/7.2/1"), Level: conformance.Must, Needs: needed,
		Sends:   "a Send and a Write with opcode 13 in place of their own",
		Expects: "a Terminate: unexpected opcode, and no receive",
		Mutants: []string{"BadSegmentsDropped"},
		Run: onHost(func(h *host) {
			for _, wrong := range []func(*conn) iwarp.Segment{
				func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSend(), data(16)).Opcode(13) },
				func(c *conn) iwarp.Segment { return c.writes(0, data(16)).Opcode(13) },
			} {
				c := h.connect(setup{receives: 2})
				c.send(wrong(c))
				c.terminated(iwarp.RDMAPUnexpectedOpcode)
				c.undelivered()
			}
		}),
	},
	{
		ID:    "rdmap/check/version",
		Title: "A message of another version of RDMAP ends the stream",
		Cite:  cite(rfc5040, "7.2", "rfc5040/7.2/2"), Level: conformance.Must, Needs: needed,
		Sends:   "Sends and Read Requests of RDMAP's versions 0, 2 and 3",
		Expects: "a Terminate: invalid version, no receive and no answer",
		Mutants: []string{"VersionsUnchecked"},
		Run: onHost(func(h *host) {
			for _, v := range []uint8{0, 2, 3} {
				h.refusedOn([]iwarp.Cause{iwarp.RDMAPInvalidVersion},
					func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSend(), data(16)).RV(v) },
					func(c *conn) iwarp.Segment { return c.reads(0, 16).RV(v) })
			}
		}),
	},
	{
		ID:    "rdmap/check/version-of-a-tagged-message",
		Title: "A Write or a Read Response of another version of RDMAP ends the stream",
		Cite:  cite(rfc5040, "7.2", "rfc5040/7.2/2"), Level: conformance.Must, Needs: needed,
		Sends:   "Writes, and Read Responses to reads of the device's, of RDMAP's versions 0, 2 and 3",
		Expects: "a Terminate: invalid version; nothing is placed, and the reads fail",
		Mutants: []string{"TaggedVersionUnchecked"},
		Run: onHost(func(h *host) {
			for _, v := range []uint8{0, 2, 3} {
				h.refusedOn([]iwarp.Cause{iwarp.RDMAPInvalidVersion}, func(c *conn) iwarp.Segment { return c.writes(0, data(16)).RV(v) })
				h.responseRefused(iwarp.RDMAPInvalidVersion, func(s iwarp.Segment) iwarp.Segment { return s.RV(v) })
			}
		}),
	},
	{
		ID:    "rdmap/resource/keys-do-not-count",
		Title: "The keys of memory cannot be foretold from earlier ones",
		Cite:  cite(rfc5040, "8.1.1", "rfc5040/8.1.1/1"), Level: conformance.Must, Needs: needed,
		Sends:   "nothing: the device's program registers a hundred regions",
		Expects: "keys that neither ascend nor descend, nor are one step apart",
		Mutants: []string{"KeysCount"},
		Run: onHost(func(h *host) {
			const n = 100
			keys := make([]verbs.RKey, n)
			steps := make(map[verbs.RKey]int)
			for i := range keys {
				keys[i] = h.Memory(64, allAccess).RKey()
				if i > 0 {
					steps[keys[i]-keys[i-1]]++
				}
			}
			h.Check(!slices.IsSorted(keys), "keys in no order", "%d keys that ascend", n)
			slices.Reverse(keys)
			h.Check(!slices.IsSorted(keys), "keys in no order", "%d keys that descend", n)
			for step, times := range steps {
				h.Check(times < n/4, "keys at different distances", "%d of %d are %#x apart", times, n-1, uint32(step))
			}
		}),
	},
}
