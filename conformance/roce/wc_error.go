package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var errorCases = overRC.Cases([]conformance.Case{{
	ID: "wc/error/unsignaled-failure-completes", Cite: ibta("10.7.3.1", "roce/err/1"),
	Run: OnPort(func(p *Port) {
		c := p.connect(Setup{})
		c.PostSend(c.QP, verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, SGL: []verbs.SGE{c.deregisteredSGE(8)}})
		c.expectErrorCompletion(1)
		c = p.connect(Setup{})
		c.PostSend(c.QP, verbs.SendWR{WRID: 2, Opcode: verbs.OpRDMAWrite, SGL: c.LocalMem.SGL(0, 8), Remote: verbs.Remote{Addr: 0x1000, RKey: 7}})
		c.expect(ib.WriteOnly(c.DevicePSN(0), ib.At(0x1000, 7, 8), nil))
		c.Send(ib.Nak(c.DevicePSN(0), ib.NakRemoteAccess, 0))
		c.expectErrorCompletion(2)
	}),
}, {
	ID: "wc/error/first-names-the-cause", Cite: ibta("", "roce/err/2"),
	Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		c.PostSend(c.QP,
			verbs.SendWR{WRID: 101, Opcode: verbs.OpSend, SGL: c.LocalMem.SGL(0, 8)},
			verbs.SendWR{WRID: 102, Opcode: verbs.OpSend, SGL: []verbs.SGE{c.deregisteredSGE(8)}},
			verbs.SendWR{WRID: 103, Opcode: verbs.OpSend, SGL: c.LocalMem.SGL(0, 8)},
		)
		c.expect(ib.SendOnly(c.DevicePSN(0), nil))
		c.Send(ib.Ack(c.DevicePSN(0), 1))
		// The first request is unsignaled and completes only if it fails.
		c.ExpectCompletion(102, verbs.WCLocProtErr)
		for range 2 {
			wc := c.NextCompletion()
			c.Check(wc.Status == verbs.WCWRFlushErr && (wc.WRID == 103 || wc.WRID == 1), "send 103 and receive 1 flushed", "%s", rig.Describe(&wc))
		}
	}),
}, {
	ID: "wc/error/earlier-requests-still-succeed", Cite: ibta("", "roce/err/3"),
	Run: onConn(Setup{signalAll: true}, func(c *Conn) {
		to := verbs.Remote{Addr: 0x1000, RKey: 7}
		c.PostSend(c.QP,
			verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, SGL: c.LocalMem.SGL(0, 8)},
			verbs.SendWR{WRID: 2, Opcode: verbs.OpRDMAWrite, SGL: c.LocalMem.SGL(0, 8), Remote: to},
			verbs.SendWR{WRID: 3, Opcode: verbs.OpRDMARead, SGL: c.LocalMem.SGL(64, 8), Remote: to},
			verbs.SendWR{WRID: 4, Opcode: verbs.OpSend, SGL: []verbs.SGE{c.deregisteredSGE(8)}},
		)
		c.nextPackets(3)
		c.Sync() // the device has processed the fourth request
		c.Send(ib.Ack(c.DevicePSN(1), 2), ib.ReadResponseOnly(c.DevicePSN(2), 3, Data(8)))
		c.ExpectCompletions(verbs.WCSuccess, 1, 2, 3)
		c.ExpectBytes(c.LocalMem, 64, Data(8))
		c.ExpectCompletion(4, verbs.WCLocProtErr)
	}),
}, {
	ID: "wc/error/names-request-and-qp", Cite: ibta("", "roce/err/4"),
	Run: OnPort(func(p *Port) {
		c := p.connect(Setup{Receives: 1})
		c.sendUnacked(101)
		c.sendUnacked(102)
		c.Send(ib.Nak(c.DevicePSN(0), ib.NakInvalidRequest, 0))
		c.expectErrorCompletions(101, 102, 1)
		c = p.connect(Setup{Receives: 2})
		c.PostSend(c.QP, verbs.SendWR{WRID: 103, Opcode: verbs.OpSend, SGL: []verbs.SGE{c.deregisteredSGE(8)}})
		c.expectErrorCompletions(103, 1, 2)
	}),
}, {
	ID: "wc/error/fatal-nak-takes-the-qp-to-error", Cite: ibta("", "roce/err/5"),
	Run: OnPort(func(p *Port) {
		for _, nak := range []struct {
			code   ib.NakCode
			status verbs.WCStatus
		}{
			{ib.NakInvalidRequest, verbs.WCRemInvReqErr}, {ib.NakRemoteAccess, verbs.WCRemAccessErr}, {ib.NakRemoteOp, verbs.WCRemOpErr},
		} {
			c := p.connect(Setup{})
			c.sendUnacked(1)
			c.sendUnacked(2)
			c.Send(ib.Nak(c.DevicePSN(0), nak.code, 0))
			c.ExpectCompletion(1, nak.status)
			c.AwaitState(c.QP, verbs.QPStateErr)
			c.ExpectCompletion(2, verbs.WCWRFlushErr)
			c.expectSilence(silencePeriod)
		}
	}),
}})

// expectErrorCompletion fails the case unless the next completion is that of this
// request, with an error.
func (c *Conn) expectErrorCompletion(id uint64) {
	wc, ok := c.PollCompletion(c.ResponseTimeout())
	switch {
	case !ok:
		c.Fail(fmt.Sprintf("an error completion of request %d", id), "none in %v", c.ResponseTimeout())
	case wc.WRID != id || wc.Status == verbs.WCSuccess:
		c.Fail(fmt.Sprintf("an error completion of request %d", id), "%s", rig.Describe(&wc))
	}
}

// expectErrorCompletions fails the case unless the next completions are those of these
// requests, in any order, each with an error and the QPN.
func (c *Conn) expectErrorCompletions(ids ...uint64) {
	missing := make(map[uint64]bool)
	for _, id := range ids {
		missing[id] = true
	}
	for range ids {
		wc := c.NextCompletion()
		if wc.Status == verbs.WCSuccess || wc.QPN != c.QP.QPN() || !missing[wc.WRID] {
			c.Fail(fmt.Sprintf("error completions of %v, queue pair %#x", ids, uint32(c.QP.QPN())), "%s, queue pair %#x", rig.Describe(&wc), uint32(wc.QPN))
		}
		delete(missing, wc.WRID)
	}
}

// deregisteredRKey returns the R_Key of a deregistered region.
func (c *Conn) deregisteredRKey() verbs.RKey {
	m := c.Memory(64, allAccess)
	key := m.RKey()
	c.Must("a region that can be deregistered", m.Close())
	return key
}

// deregisteredSGE returns n bytes of a deregistered region.
func (c *Conn) deregisteredSGE(n int) verbs.SGE {
	m := c.Memory(n, verbs.AccessLocalWrite)
	sge := m.SGE(0, n)
	c.Must("a region that can be deregistered", m.Close())
	return sge
}
