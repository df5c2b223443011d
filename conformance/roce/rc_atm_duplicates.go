package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var atomicReplayCases = []conformance.Case{
	{
		ID:    "rc/atm/duplicate-not-executed-again",
		Title: "A duplicate atomic is not executed again: it gets the result of the first time",
		Cite:  ibta("summary of duplicate requests", "roce/rc/atm/4"), Level: conformance.Must, Needs: needsAtomics, Labels: rdmaLabels,
		Sends:   "a FETCH_ADD twice, a COMPARE_SWAP twice",
		Expects: "the same answer twice, one change of memory each",
		Defects: []string{"DuplicatesExecuted"},
		Run: on(setup{}, func(c *conn) {
			setWord(c.mem, 2, 100)
			add, swap := ib.FetchAdd(c.psn(0), wordAt(c.mem, 2), 5), ib.CompareSwap(c.psn(1), wordAt(c.mem, 2), 105, 7)
			for range 2 {
				c.send(add)
				c.expects(ib.AtomicAck(c.psn(0), ib.AnyMSN, 100))
				c.hasWord(c.mem, 2, 105)
			}
			for range 2 {
				c.send(swap)
				c.expects(ib.AtomicAck(c.psn(1), ib.AnyMSN, 105))
				c.hasWord(c.mem, 2, 7)
			}
		}),
	},
	{
		ID:    "rc/atm/every-granted-result-is-kept",
		Title: "A responder keeps the results of as many atomics as max_dest_rd_atomic says",
		Cite:  ibta("", "roce/rc/atm/5"), Level: conformance.Must, Needs: needsAtomics, Labels: rdmaLabels,
		Sends:   "to a QP with max_dest_rd_atomic 4: six FETCH_ADDs one after the other, then the last four again, twice over",
		Expects: "each repetition gets the result of its own request, and adds nothing",
		Defects: []string{"ReplayKeepsOne"},
		Run: on(setup{change: responderResources(4)}, func(c *conn) {
			results := c.addOneByOne(6)
			for range 2 {
				for i := 2; i < 6; i++ {
					c.send(ib.FetchAdd(c.psn(i), wordAt(c.mem, 2), 1<<i))
					c.expects(ib.AtomicAck(c.psn(i), ib.AnyMSN, results[i]))
				}
			}
			c.hasWord(c.mem, 2, results[6])
		}),
	},
	{
		ID:    "rc/atm/results-kept-when-resources-change",
		Title: "Changing max_dest_rd_atomic does not lose the results that are kept",
		Cite:  ibta("", "roce/rc/atm/5"), Level: conformance.Must, Needs: needsAtomics, Labels: rdmaLabels,
		Sends:   "two FETCH_ADDs, then, with max_dest_rd_atomic raised from 2 to 4 in SQD, both again",
		Expects: "the results of the first time, and nothing added",
		Defects: []string{"ModifyForgetsReplay"},
		Run: on(setup{change: responderResources(2)}, func(c *conn) {
			results := c.addOneByOne(2)
			c.Must("a queue pair in SQD", c.qp.Modify(verbs.QPAttr{State: verbs.QPStateSQD}, verbs.QPAttrState))
			c.Must("more responder resources in SQD", c.qp.Modify(verbs.QPAttr{State: verbs.QPStateSQD, MaxDestRdAtomic: 4},
				verbs.QPAttrState|verbs.QPAttrMaxDestRdAtomic))
			for i := range 2 {
				c.send(ib.FetchAdd(c.psn(i), wordAt(c.mem, 2), 1<<i))
				c.expects(ib.AtomicAck(c.psn(i), ib.AnyMSN, results[i]))
			}
			c.hasWord(c.mem, 2, results[2])
		}),
	},
	{
		ID:    "rc/atm/refused-beyond-responder-resources",
		Title: "An atomic beyond max_dest_rd_atomic is refused as an invalid request, and not executed, while others are unfinished",
		Cite:  ibta("", "roce/rc/atm/6"), Level: conformance.Must, Needs: needsAtomics, Labels: rdmaLabels,
		Sends:   "to a QP with max_dest_rd_atomic 1: a READ of 1 MiB and at once a FETCH_ADD",
		Expects: "a NAK for an invalid request with the PSN of the FETCH_ADD, memory as it was",
		Defects: []string{"NoRdAtomicLimit"},
		Run: on(setup{change: responderResources(1)}, func(c *conn) {
			excess := c.crowd(0)
			c.send(ib.FetchAdd(excess, wordAt(c.mem, 2), 1))
			c.refusedBehindReads(excess)
			c.settle()
			c.ExpectUnchanged(c.mem, 0, 0)
		}),
	},
	{
		ID:    "rc/atm/duplicate-with-other-operands-executes-nothing",
		Title: "A packet with the PSN of an earlier atomic but another operation or operands executes nothing",
		Cite:  ibta("", "roce/rc/atm/7"), Level: conformance.Must, Needs: needsAtomics, Labels: rdmaLabels,
		Sends:   "a FETCH_ADD, then with its PSN another summand, another address, and a COMPARE_SWAP",
		Expects: "the result of the first or no answer; memory as the first left it, and the QP goes on",
		Defects: []string{"DuplicatesExecuted"},
		Run: on(setup{}, func(c *conn) {
			setWord(c.mem, 2, 100)
			at := wordAt(c.mem, 2)
			c.send(ib.FetchAdd(c.psn(0), at, 5))
			saved := ib.AtomicAck(c.psn(0), ib.AnyMSN, 100)
			c.expects(saved)
			for _, odd := range []ib.Packet{
				ib.FetchAdd(c.psn(0), at, 6), ib.FetchAdd(c.psn(0), wordAt(c.mem, 3), 5), ib.CompareSwap(c.psn(0), at, 105, 1),
			} {
				c.send(odd)
				if got, ok := c.noise(soon); ok {
					c.same(saved, got)
				}
				c.hasWord(c.mem, 2, 105)
			}
			c.send(ib.FetchAdd(c.psn(1), at, 1))
			c.expects(ib.AtomicAck(c.psn(1), ib.AnyMSN, 105))
		}),
	},
}

// addOneByOne adds 1, 2, 4 and so on to a word, waiting for each result. It returns
// these and the sum.
func (c *conn) addOneByOne(n int) []uint64 {
	results := make([]uint64, 1, n+1)
	results[0] = 1000
	setWord(c.mem, 2, results[0])
	for i := range n {
		c.send(ib.FetchAdd(c.psn(i), wordAt(c.mem, 2), 1<<i))
		c.expects(ib.AtomicAck(c.psn(i), ib.AnyMSN, results[i]))
		results = append(results, results[i]+1<<i)
	}
	return results
}
