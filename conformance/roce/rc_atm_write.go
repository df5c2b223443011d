package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var atomicWriteCases = conformance.Group{Needs: verbs.CapRC | verbs.CapAtomicWrite, Labels: labelRC}.Cases([]conformance.Case{{
	ID:   "rc/atm/short-atomic-write-refused",
	Cite: conformance.Cite{Doc: "Annex A19", Section: "oA19-28", Rows: []string{"roce/rc/atm/14"}},
	Run: OnPort(onEachConn(Setup{}, []atomicWriteSize{{4, 8}, {4, 4}, {0, 8}, {0, 0}, {16, 8}, {16, 16}}, func(c *Conn, w atomicWriteSize) {
		c.expectAtomicRefused(ib.AtomicWrite(c.PeerPSN(0), wordRETH(c.TargetMem, 2).Sized(w.length), Data(w.payload)), ib.NakInvalidRequest)
	})),
}, {
	ID:   "rc/atm/misaligned-atomic-write-refused",
	Cite: conformance.Cite{Doc: "Annex A19", Section: "oA19-28", Rows: []string{"roce/rc/atm/14"}},
	Run: OnPort(onEachConn(Setup{}, []int{1, 4}, func(c *Conn, off int) {
		c.expectAtomicRefused(ib.AtomicWrite(c.PeerPSN(0), wordRETH(c.TargetMem, 2).Skip(off).Sized(8), Data(8)), ib.NakInvalidRequest)
	})),
}, {
	ID:   "rc/atm/duplicate-atomic-write-stores-nothing",
	Cite: conformance.Cite{Doc: "Annex A19", Section: "oA19-28", Rows: []string{"roce/rc/atm/14"}},
	Run: onConn(Setup{}, func(c *Conn) {
		first := ib.AtomicWrite(c.PeerPSN(0), wordRETH(c.TargetMem, 2), Data(8))
		done := ib.ReadResponseOnly(c.PeerPSN(0), ib.AnyMSN, []byte{})
		c.exchange(first, done)
		c.ExpectBytes(c.TargetMem, c.TargetMem.WordOffset(2), Data(8))
		c.Send(ib.WriteOnly(c.PeerPSN(1), wordRETH(c.TargetMem, 2), hostOrder(7)).AckReq())
		c.expectAck(c.PeerPSN(1))
		c.exchange(first, done)
		c.expectWord(c.TargetMem, 2, 7)
		c.Send(first.WithPayload(hostOrder(8)))
		if got, ok := c.packetAfterSync(shortWait); ok {
			c.checkPacket(done, got)
		}
		c.expectWord(c.TargetMem, 2, 7)
	}),
}})

// atomicWriteSize is the payload length of an ATOMIC WRITE, and the length in its RETH.
type atomicWriteSize struct{ payload, length int }
