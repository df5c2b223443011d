package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// onSRQ creates n RC QPs that share an SRQ and uses the first.
func (p *peer) onSRQ(s *nic.SRQ, n int) []*QP {
	p.Helper()
	qps := make([]*QP, n)
	for i := range qps {
		qps[i] = p.replaceQP(verbs.QPTypeRC, func(c *QPConfig) { c.SRQ = s })
	}
	p.with(qps[0])
	return qps
}

// with switches the test to another QP.
func (p *peer) with(q *QP) *peer {
	p.q, p.port = q, 0
	return p
}

// srq/1, srq/6: QPs share receives; each message takes one with its first packet.
func TestQPsShareTheReceivesOfAnSRQ(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		s := p.h.srq(nil)
		qps := p.onSRQ(s, 2)
		for id := range uint64(4) {
			p.postSRQ(s, id, 2*p.mtu)
		}
		p.with(qps[0]).send(wire.OpSendFirst, 0, data(p.mtu))
		p.with(qps[1]).send(wire.OpSendOnly, 0, data(4))
		p.with(qps[0]).send(wire.OpSendLast, 1, data(4))
		p.with(qps[1]).send(wire.OpSendFirst, 1, data(p.mtu))
		p.with(qps[0]).send(wire.OpWriteOnlyImm, 2, p.at(0, 8), data(8), imm(1))
		p.with(qps[1]).send(wire.OpSendLast, 2, data(1))
		var got []string
		for _, wc := range p.h.poll() {
			got = append(got, fmt.Sprintf("qp %d: %s", wc.QPN-verbs.QPN(qps[0].num), renderWC(&wc)))
		}
		p.compare("completed", got, []string{
			"qp 1: 1 SUCCESS RECV 4B", fmt.Sprintf("qp 0: 0 SUCCESS RECV %dB", p.mtu+4),
			"qp 0: 3 SUCCESS RECV_RDMA_WITH_IMM 8B imm 00000001", fmt.Sprintf("qp 1: 2 SUCCESS RECV %dB", p.mtu+1),
		})
		if n := s.Count(); n != 0 {
			p.Errorf("%d receives in the SRQ", n)
		}
	})
}

// srq/2: Falling below the limit raises one event and disarms the limit.
func TestSRQLimitEventIsRaisedOnce(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		s := p.h.srq(func(c *nic.SRQConfig) { c.MaxWR, c.Limit = 4, 3 })
		p.onSRQ(s, 1)
		for id := range uint64(4) {
			p.postSRQ(s, id, 8)
		}
		p.send(wire.OpSendOnly, 0)
		p.events() // three receives: not below the limit of three
		if a := s.Query(); a.Limit != 3 {
			p.Errorf("limit is %d", a.Limit)
		}
		p.send(wire.OpSendOnly, 1)
		if e, ok := p.h.nic.NextEvent(); !ok || e.Type != verbs.EventSRQLimitReached || e.SRQ != s {
			p.Fatalf("event %+v", e)
		}
		p.send(wire.OpSendOnly, 2)
		p.events()
		if a := s.Query(); a.Limit != 0 {
			p.Errorf("limit is %d, still armed", a.Limit)
		}
		p.postSRQ(s, 4, 8) // two receives again
		must.Do(p, s.Modify(verbs.SRQAttr{Limit: 2}, verbs.SRQLimit))
		p.events()
		p.send(wire.OpSendOnly, 3)
		p.events(verbs.EventSRQLimitReached)
	})
}

// srq/3: A QP with an SRQ rejects PostRecv.
func TestQPWithSRQRejectsPostRecv(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		s := p.h.srq(nil)
		p.onSRQ(s, 1)
		must.Fail(p, "posted", p.q.PostRecv(&verbs.RecvWR{}), verbs.ErrInvalid)
	})
}

// srq/4: An empty SRQ causes an RNR NAK. A QP with an SRQ advertises no credits.
func TestEmptySRQCausesRNRNAK(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		s := p.h.srq(nil)
		p.onSRQ(s, 1)
		p.send(wire.OpSendOnly, 0, data(4), ackReq)
		p.expect("RNR 0 code 12 msn 0")
		p.postSRQ(s, 1, 8)
		p.postSRQ(s, 2, 8)
		p.send(wire.OpSendOnly, 0, data(4), ackReq)
		p.expect("ACK 0 msn 1")
		if c := p.got[0].AETH.Syndrome; c != wire.Ack(wire.CreditUnlimited) {
			p.Errorf("syndrome %#x advertises credits", uint8(c))
		}
		p.wcs("1 SUCCESS RECV 4B")
	})
}

// srq/5, srq/7: A failed QP does not flush the SRQ and raises LAST_WQE_REACHED.
// Other QPs and posting continue.
func TestQPErrorDoesNotFlushSRQ(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		s := p.h.srq(nil)
		qps := p.onSRQ(s, 2)
		p.postSRQ(s, 1, 8)
		p.h.modify(qps[0], verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
		p.wcs()
		if e, ok := p.h.nic.NextEvent(); !ok || e.Type != verbs.EventQPLastWQEReached || e.QP != qps[0] {
			p.Fatalf("event %+v", e)
		}
		p.h.modify(qps[0], verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
		p.events() // once
		p.postSRQ(s, 2, 8)
		p.with(qps[1])
		p.send(wire.OpSendOnly, 0, data(4))
		p.send(wire.OpSendOnly, 1, data(4))
		p.wcs("1 SUCCESS RECV 4B", "2 SUCCESS RECV 4B")
	})
}

// srq/5: The receive of an unfinished message is flushed before LAST_WQE_REACHED.
func TestClaimedReceiveIsFlushedBeforeLastWQEEvent(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		s, cq := p.h.srq(nil), p.cqOf(1)
		p.replaceQP(verbs.QPTypeRC, func(c *QPConfig) { c.SRQ, c.RecvCQ = s, cq })
		p.postSRQ(s, 1, 2*p.mtu)
		p.postSRQ(s, 2, 8)
		p.send(wire.OpSendFirst, 0, data(p.mtu))
		p.h.modify(p.q, verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
		p.polled(cq, "1 WR_FLUSH_ERR")
		p.events(verbs.EventQPLastWQEReached)
		if n := s.Count(); n != 1 {
			p.Errorf("%d receives in the SRQ", n)
		}
	})
}

// srq/8: A limit above the size, or a size below the number of posted receives, is
// rejected without changes.
func TestModifySRQRejectsInvalidSizes(t *testing.T) {
	each(t, setup{nic: func(c *Config) { c.Limits.SRQWR = 32 }}, func(p *peer) {
		s := p.h.srq(func(c *nic.SRQConfig) { c.MaxWR, c.Limit = 8, 2 })
		p.onSRQ(s, 1)
		for id := range uint64(5) { // so that the ring wraps
			p.postSRQ(s, id, 8)
			p.send(wire.OpSendOnly, int(id), data(int(id)))
		}
		p.h.poll()
		p.events(verbs.EventSRQLimitReached)
		for id := range uint64(6) {
			p.postSRQ(s, id, 8+int(id))
		}
		before := s.Query()
		const both = verbs.SRQMaxWR | verbs.SRQLimit
		for _, c := range []struct {
			a    verbs.SRQAttr
			mask verbs.SRQAttrMask
		}{
			{verbs.SRQAttr{Limit: 9}, verbs.SRQLimit},
			{verbs.SRQAttr{Limit: -1}, verbs.SRQLimit},
			{verbs.SRQAttr{MaxWR: 5}, verbs.SRQMaxWR},
			{verbs.SRQAttr{MaxWR: 0}, verbs.SRQMaxWR},
			{verbs.SRQAttr{MaxWR: 33}, verbs.SRQMaxWR},
			{verbs.SRQAttr{MaxWR: 6, Limit: 7}, both},
			{verbs.SRQAttr{MaxWR: 5, Limit: 1}, both},
		} {
			must.Fail(p, fmt.Sprintf("%+v", c.a), s.Modify(c.a, c.mask), verbs.ErrInvalid)
			if after := s.Query(); after != before {
				p.Errorf("%+v changed %+v to %+v", c.a, before, after)
			}
		}
		must.Do(p, s.Modify(verbs.SRQAttr{MaxWR: 6, Limit: 6}, both))
		if a := s.Query(); a.MaxWR != 6 || a.Limit != 6 {
			p.Errorf("is %+v", a)
		}
		must.Fail(p, "resized below its limit", s.Modify(verbs.SRQAttr{MaxWR: 5, Limit: 6}, verbs.SRQMaxWR), verbs.ErrInvalid)
		must.Do(p, s.Modify(verbs.SRQAttr{MaxWR: 32}, verbs.SRQMaxWR))
		for id := 6; id < 32; id++ {
			p.postSRQ(s, uint64(id), 8+id)
		}
		must.Fail(p, "one beyond the new size", s.PostRecv(&verbs.RecvWR{}), verbs.ErrNoMemory)
		// The queued receives are unchanged and in order.
		var want []string
		for id := range 32 {
			p.send(wire.OpSendOnly, 5+id, data(8+id))
			want = append(want, fmt.Sprintf("%d SUCCESS RECV %dB", id, 8+id))
		}
		p.wcs(want...)
	})
}

// srq/9: A full SRQ rejects further receives.
func TestFullSRQRejectsPostRecv(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		s := p.h.srq(func(c *nic.SRQConfig) { c.MaxWR, c.MaxSGE = 3, 1 }) // no power of two
		p.onSRQ(s, 1)
		sge := p.h.sge(recvAt, 4)
		must.Fail(p, "two SGEs, limit of one", s.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{sge, sge}}), verbs.ErrInvalid)
		for id := range uint64(3) {
			p.postSRQ(s, id, 8)
		}
		must.Fail(p, "a fourth receive in a queue of three", s.PostRecv(&verbs.RecvWR{WRID: 9}), verbs.ErrNoMemory)
		for k := range 3 {
			p.send(wire.OpSendOnly, k, data(8))
		}
		p.send(wire.OpSendOnly, 3, data(8))
		p.wcs("0 SUCCESS RECV 8B", "1 SUCCESS RECV 8B", "2 SUCCESS RECV 8B")
		p.expect("RNR 3 code 12 msn 3")
	})
}

// L_Keys of SRQ receives are checked in the protection domain of the SRQ, not of the QP.
func TestSRQReceivesUseDomainOfSRQ(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		pd := p.h.allocPD()
		mr := p.regionIn(pd, verbs.AccessLocalWrite)
		s := p.h.srq(func(c *nic.SRQConfig) { c.PD = pd })
		p.onSRQ(s, 1)
		post := func() { // one with a key of the SRQ's domain, one of the QP's
			p.Helper()
			own := verbs.SGE{Addr: mr.Addr + recvAt, Length: 64, LKey: verbs.LKey(mr.Key)}
			must.Do(p, s.PostRecv(&verbs.RecvWR{WRID: 1, SGL: []verbs.SGE{own}}))
			p.postSRQ(s, 2, 64)
		}
		post()
		p.send(wire.OpSendOnly, 0, data(8))
		p.wcs("1 SUCCESS RECV 8B")
		p.send(wire.OpSendOnly, 1, data(8), ackReq)
		p.wcs("2 LOC_PROT_ERR")
		p.expect("NAK 1 operational msn 1")
		p.state(verbs.QPStateErr)
		p.silence(time.Second)
		post()
		d := udPeer{p}
		d.replaceByUD(func(c *QPConfig) { c.SRQ = s })
		d.send(wire.OpSendOnly, 0, data(8))
		d.send(wire.OpSendOnly, 1, data(8))
		p.wcs("1 SUCCESS RECV 48B", "2 LOC_PROT_ERR")
		p.state(verbs.QPStateErr)
	})
}

// An SRQ in use cannot be destroyed.
func TestDestroySRQ(t *testing.T) {
	h := newHost(t, "10.0.0.1", nil)
	s := h.srq(nil)
	q := h.qp(verbs.QPTypeRC, func(c *QPConfig) { c.SRQ = s })
	must.Fail(t, "destroyed while a QP uses it", h.nic.DestroySRQ(s), verbs.ErrBusy)
	must.Do(t, h.nic.DestroyQP(q))
	must.Do(t, h.nic.DestroySRQ(s))
}
