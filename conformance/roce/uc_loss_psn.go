package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var ucLossCases = overUC.Cases([]conformance.Case{{
	ID: "uc/loss/incomplete-message-uses-no-receive", Cite: ibta("error class D1", "roce/uc/2"), Needs: verbs.CapRC,
	Run: OnPort(func(p *Port) {
		for lost := range 3 {
			c := p.connect(ucSetup(3))
			c.Send(ucSendWithout(c.PeerPSN(0), lost)...)
			c.expectNoCompletion()
			// Another case checks that the next message is delivered. Here one of two
			// must be, in the first receive.
			c.Send(ucSendOnly(c.PeerPSN(3), 48), ucSendOnly(c.PeerPSN(4), 48))
			c.ExpectRecv(1, 48)
			c.ExpectBytes(c.LocalMem, 0, Data(48))
			c.Sync()
			for _, more := c.PollCompletion(0); more; _, more = c.PollCompletion(0) {
			}
			c.Must("a queue pair that can be destroyed", c.QP.Close())
		}
	}),
}, {
	ID: "uc/loss/next-message-delivered", Cite: ibta("9.9.3.1.5, error class D1", "roce/uc/3"),
	Run: onUC(2, func(c *Conn) {
		c.Send(ucSendWithout(c.PeerPSN(0), 1)...)
		c.Send(ucSendOnly(c.PeerPSN(3), 48))
		c.ExpectRecv(1, 48)
		c.ExpectBytes(c.LocalMem, 0, Data(48))
		c.Send(ucSendWithout(c.PeerPSN(4), 1)...)
		n := ucMTU + 20
		c.Send(ucSend(c.PeerPSN(7), n)...)
		c.ExpectRecv(2, n)
		c.ExpectBytes(c.LocalMem, ucRecvLen, Data(n))
	}),
}, {
	ID: "uc/loss/queue-goes-on-after-a-lost-packet", Cite: ibta("9.9.3.1.5, error class D1", "roce/uc/3"),
	Run: onUC(20, func(c *Conn) {
		psn := 0
		for range 3 {
			c.Send(ucSendWithout(c.PeerPSN(psn), 1)...)
			write := ib.Write(c.PeerPSN(psn+3), c.RETH(0, 0), Data(3*ucMTU), ucMTU)
			c.Send(write[0].On(ib.UC), write[2].On(ib.UC))
			psn += 6
			for i := range 3 {
				c.Send(ucSendOnly(c.PeerPSN(psn+2*i), 8+i))
			}
			psn += 7
		}
		// Another case checks that no message is lost unnecessarily. Here the last
		// one must arrive.
		c.Send(ucSendOnly(c.PeerPSN(psn), 60))
		for wc := c.NextCompletion(); wc.ByteLen != 60; wc = c.NextCompletion() {
			c.Check(wc.Status == verbs.WCSuccess, "receives that complete with success", "%s", rig.Describe(&wc))
		}
	}),
}, {
	ID: "uc/psn/message-may-begin-at-any-psn", Cite: ibta("", "roce/uc/4"),
	Run: OnPort(func(p *Port) {
		s := ucSetup(8)
		s.Modify = func(a *verbs.QPAttr) { a.PathMTU, a.RQPSN = verbs.MTU256, 0xfffffa }
		c := p.connect(s)
		id, psn := uint64(0), 10
		for i, n := range []int{30, 2*ucMTU + 7, 31} {
			msg := ucSend(c.PeerPSN(psn), n)
			c.Send(msg...)
			id++
			c.ExpectRecv(id, n)
			psn += len(msg)
			c.Send(ucSendOnly(c.PeerPSN(psn), 5+i))
			id++
			c.ExpectRecv(id, 5+i)
			psn += []int{1000, 1 << 22, 5}[i]
		}
		c.Send(ib.WriteOnly(c.PeerPSN(psn), c.RETH(0, 16), Data(16)).On(ib.UC), ucSendOnly(c.PeerPSN(psn+1), 9))
		c.ExpectRecv(id+1, 9)
		c.ExpectBytes(c.TargetMem, 0, Data(16))
	}),
}, {
	ID: "uc/psn/copied-message-does-no-harm", Cite: ibta("", "roce/uc/10"), Level: conformance.May, Needs: verbs.CapRC,
	Run: onUC(4, func(c *Conn) {
		one, two := ucSendOnly(c.PeerPSN(0), 32), ucSend(c.PeerPSN(1), ucMTU+8)
		for _, msg := range [][]ib.Packet{{one}, two} {
			c.Send(msg...)
			first := c.NextCompletion()
			c.Check(first.Status == verbs.WCSuccess, "the message is delivered", "%s", rig.Describe(&first))
			c.Send(msg...)
			c.Sync()
			if again, ok := c.PollCompletion(0); ok {
				c.Check(again.Status == verbs.WCSuccess && again.ByteLen == first.ByteLen,
					fmt.Sprintf("the same %d bytes again", first.ByteLen), "%s", rig.Describe(&again))
			}
		}
		c.ExpectState(c.QP, verbs.QPStateRTS)
		c.PostRecv(c.QP, 5, c.LocalMem.SGE(3*ucRecvLen, ucRecvLen))
		c.Send(ucSendOnly(c.PeerPSN(3), 33))
		wc := c.NextCompletion()
		c.Check(wc.Status == verbs.WCSuccess && wc.ByteLen == 33, "the next message is delivered", "%s", rig.Describe(&wc))
	}),
}})

// ucSend returns the packets of a UC SEND of n bytes.
func ucSend(psn ib.PSN, n int) []ib.Packet {
	all := ib.Send(psn, Data(n), ucMTU)
	for i := range all {
		all[i] = all[i].NoAckReq().On(ib.UC)
	}
	return all
}

// ucSendWithout returns a UC SEND of three packets, without the one with index lost.
func ucSendWithout(psn ib.PSN, lost int) []ib.Packet {
	all := ucSend(psn, 2*ucMTU+100)
	return append(all[:lost], all[lost+1:]...)
}
