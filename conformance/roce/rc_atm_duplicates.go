package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var atomicReplayCases = conformance.Group{Needs: verbs.CapRC | verbs.CapAtomics, Labels: labelRC}.Cases([]conformance.Case{{
	ID: "rc/atm/duplicate-not-executed-again", Cite: ibta("summary of duplicate requests", "roce/rc/atm/4"),
	Run: onConn(Setup{}, func(c *Conn) {
		setWord(c.TargetMem, 2, 100)
		add, swap := ib.FetchAdd(c.PeerPSN(0), wordRETH(c.TargetMem, 2), 5), ib.CompareSwap(c.PeerPSN(1), wordRETH(c.TargetMem, 2), 105, 7)
		for range 2 {
			c.exchange(add, ib.AtomicAck(c.PeerPSN(0), ib.AnyMSN, 100))
			c.expectWord(c.TargetMem, 2, 105)
		}
		for range 2 {
			c.exchange(swap, ib.AtomicAck(c.PeerPSN(1), ib.AnyMSN, 105))
			c.expectWord(c.TargetMem, 2, 7)
		}
	}),
}, {
	ID: "rc/atm/every-granted-result-is-kept", Cite: ibta("", "roce/rc/atm/5"),
	Run: onConn(Setup{Modify: withResponderResources(4)}, func(c *Conn) {
		results := c.fetchAddEach(6)
		for range 2 {
			for i := 2; i < 6; i++ {
				c.Send(ib.FetchAdd(c.PeerPSN(i), wordRETH(c.TargetMem, 2), 1<<i))
				c.expect(ib.AtomicAck(c.PeerPSN(i), ib.AnyMSN, results[i]))
			}
		}
		c.expectWord(c.TargetMem, 2, results[6])
	}),
}, {
	ID: "rc/atm/results-kept-when-resources-change", Cite: ibta("", "roce/rc/atm/5"),
	Run: onConn(Setup{Modify: withResponderResources(2)}, func(c *Conn) {
		results := c.fetchAddEach(2)
		c.ToState(c.QP, verbs.QPStateSQD)
		c.Must("more responder resources in SQD", c.QP.Modify(verbs.QPAttr{State: verbs.QPStateSQD, MaxDestRdAtomic: 4},
			verbs.QPAttrState|verbs.QPAttrMaxDestRdAtomic))
		for i := range 2 {
			c.Send(ib.FetchAdd(c.PeerPSN(i), wordRETH(c.TargetMem, 2), 1<<i))
			c.expect(ib.AtomicAck(c.PeerPSN(i), ib.AnyMSN, results[i]))
		}
		c.expectWord(c.TargetMem, 2, results[2])
	}),
}, {
	ID: "rc/atm/refused-beyond-responder-resources", Cite: ibta("", "roce/rc/atm/6"),
	Run: onConn(Setup{Modify: withResponderResources(1)}, func(c *Conn) {
		excess := c.sendLongReads(0)
		c.Send(ib.FetchAdd(excess, wordRETH(c.TargetMem, 2), 1))
		c.expectNakAfterReads(excess)
		c.Sync()
		c.ExpectUnchanged(c.TargetMem, 0, 0)
	}),
}, {
	ID: "rc/atm/duplicate-with-other-operands-executes-nothing", Cite: ibta("", "roce/rc/atm/7"),
	Run: onConn(Setup{}, func(c *Conn) {
		setWord(c.TargetMem, 2, 100)
		at := wordRETH(c.TargetMem, 2)
		c.Send(ib.FetchAdd(c.PeerPSN(0), at, 5))
		saved := ib.AtomicAck(c.PeerPSN(0), ib.AnyMSN, 100)
		c.expect(saved)
		for _, odd := range []ib.Packet{
			ib.FetchAdd(c.PeerPSN(0), at, 6), ib.FetchAdd(c.PeerPSN(0), wordRETH(c.TargetMem, 3), 5), ib.CompareSwap(c.PeerPSN(0), at, 105, 1),
		} {
			c.Send(odd)
			if got, ok := c.packetAfterSync(shortWait); ok {
				c.checkPacket(saved, got)
			}
			c.expectWord(c.TargetMem, 2, 105)
		}
		c.exchange(ib.FetchAdd(c.PeerPSN(1), at, 1), ib.AtomicAck(c.PeerPSN(1), ib.AnyMSN, 105))
	}),
}})

// fetchAddEach sends n FETCH_ADDs of 1, 2, 4 and so on to the same word, one at a time.
// It returns the original values and the sum.
func (c *Conn) fetchAddEach(n int) []uint64 {
	results := make([]uint64, 1, n+1)
	results[0] = 1000
	setWord(c.TargetMem, 2, results[0])
	for i := range n {
		c.Send(ib.FetchAdd(c.PeerPSN(i), wordRETH(c.TargetMem, 2), 1<<i))
		c.expect(ib.AtomicAck(c.PeerPSN(i), ib.AnyMSN, results[i]))
		results = append(results, results[i]+1<<i)
	}
	return results
}
