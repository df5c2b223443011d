package engine

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// mw/8: A type 2 window can be bound only while unbound. Invalidation unbinds it;
// the next bind has a new key, and the old key stays invalid.
func TestType2WindowIsBoundWhenUnbound(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		w := p.window(2)
		old := p.mustBind(w, 0, 8)
		p.post(2, verbs.OpLocalInv, 0, func(wr *verbs.SendWR) { wr.SGL, wr.InvalidateRKey = nil, verbs.RKey(old) })
		p.expect()
		p.wcs("2 SUCCESS LOCAL_INV")
		fresh := p.mustBind(w, 8, 8)
		p.send(wire.OpReadRequest, 0, p.at(8, 8), rkey(fresh))
		p.expect("RR_ONLY 0 8B msn 1")
		p.bind(3, w, 0, 8) // while it is bound
		p.expect()
		p.wcs("3 MW_BIND_ERR")
		p.h.modify(p.q, verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState)
		p.connect(p.q, nil)
		p.send(wire.OpReadRequest, 0, p.at(8, 8), rkey(fresh)) // the old range is still valid
		p.expect("RR_ONLY 0 8B msn 1")
		p.send(wire.OpReadRequest, 1, p.at(0, 8), rkey(old))
		p.expect("NAK 1 access msn 1")
	})
}

// mw/9: A bound type 1 window can be bound again; length 0 unbinds it. Both
// invalidate its last key.
func TestType1WindowIsUnboundByLengthZero(t *testing.T) {
	for _, n := range []int{0, 8} {
		each(t, setup{}, func(p *peer) {
			w := p.window(1)
			old := p.mustBind(w, 0, 8)
			fresh := p.mustBind(w, 0, n)
			if w.Bound() != (n > 0) || w.Key != fresh {
				p.Errorf("bound is %v, key %#x", w.Bound(), w.Key)
			}
			p.send(wire.OpReadRequest, 0, p.at(0, 8), rkey(fresh))
			if n > 0 {
				p.expect("RR_ONLY 0 8B msn 1")
				p.send(wire.OpReadRequest, 1, p.at(0, 8), rkey(old))
				p.expect("NAK 1 access msn 1")
			} else {
				p.expect("NAK 0 access msn 0")
			}
		})
	}
}

// mw/11: A region cannot be deregistered while windows are bound to it.
func TestRegionWithBoundWindowsIsBusy(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		one, two := p.window(1), p.window(2)
		key := p.mustBind(one, 0, 8)
		p.mustBind(two, 0, 8)
		p.h.nic.DeallocMW(two)
		must.Fail(p, "deregistered", p.h.nic.DeregMR(p.h.mr), verbs.ErrBusy)
		p.send(wire.OpReadRequest, 0, p.at(0, 8), rkey(key)) // still valid
		p.expect("RR_ONLY 0 8B msn 1")
		p.mustBind(one, 0, 0)
		must.Do(p, p.h.nic.DeregMR(p.h.mr))
		must.Fail(p, "deregistered twice", p.h.nic.DeregMR(p.h.mr), verbs.ErrInvalid)
	})
}

// mw/12: Destroying a QP unbinds its type 2 windows, also for a later QP with its number.
func TestQPWithBoundWindowsCanBeDestroyed(t *testing.T) {
	fewQPs := setup{nic: func(c *Config) { c.Limits.QPs = 8 }} // QP numbers are reused soon
	each(t, fewQPs, func(p *peer) {
		one, two := p.window(1), p.window(2)
		p.mustBind(one, 0, 8)
		p.mustBind(two, 0, 8)
		must.Do(p, p.h.nic.DestroyQP(p.q))
		if !one.Bound() || two.Bound() {
			p.Errorf("bound %v, %v: want type 1 bound, type 2 unbound", one.Bound(), two.Bound())
		}
		for old := p.q.num; p.replaceQP(verbs.QPTypeRC, nil).num != old; { // until the number is used again
			must.Do(p, p.h.nic.DestroyQP(p.q))
		}
		p.send(wire.OpReadRequest, 0, p.at(0, 8), rkey(two.Key))
		p.expect("NAK 0 access msn 0")
	})
}

// mw/13: An unsignaled bind completes only if it fails.
func TestUnsignaledBindCompletesOnlyInError(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		unsignaled := func(wr *verbs.SendWR, _ *Refs) { wr.Flags = 0 }
		w := p.window(2)
		p.bind(1, w, 0, 8, unsignaled)
		p.expect()
		p.wcs()
		if !w.Bound() {
			p.Error("not bound")
		}
		p.bind(2, w, 0, 8, unsignaled)
		p.expect()
		p.wcs("2 MW_BIND_ERR")
	})
}

// mw/14: A local invalidate waits for all earlier requests, a bind does not. Later
// requests wait for both.
func TestLocalInvalidateWaitsForEarlierRequests(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		w := p.window(2)
		key := p.mustBind(w, 0, 8)
		p.post(1, verbs.OpRDMARead, 8)
		p.post(2, verbs.OpSend, 4)
		p.post(3, verbs.OpLocalInv, 0, func(wr *verbs.SendWR) { wr.SGL, wr.InvalidateRKey = nil, verbs.RKey(key) })
		p.post(4, verbs.OpSend, 4)
		p.expect("READ_REQUEST 0 va+0 len 8 ackreq", "SEND_ONLY 1 4B ackreq")
		p.send(wire.OpReadResponseOnly, 0, data(8))
		p.expect()
		if !w.Bound() {
			p.Fatal("invalidated before the SEND was acknowledged")
		}
		p.send(wire.OpReadRequest, 0, p.at(0, 8), rkey(key))
		p.expect("RR_ONLY 0 8B msn 1")
		p.ack(1)
		p.expect("SEND_ONLY 2 4B ackreq")
		if w.Bound() {
			p.Error("still bound")
		}
		p.wcs("1 SUCCESS RDMA_READ 8B", "2 SUCCESS SEND", "3 SUCCESS LOCAL_INV")
		p.post(5, verbs.OpSend, 4)
		p.bind(6, w, 0, 8)
		p.expect("SEND_ONLY 3 4B ackreq")
		if !w.Bound() {
			p.Error("the bind waited for the SEND")
		}
		p.wcs() // but not its completion
		p.ack(3)
		p.wcs("4 SUCCESS SEND", "5 SUCCESS SEND", "6 SUCCESS BIND_MW")
	})
}

// rc/inv: Only a type 2 window bound to the QP can be invalidated on it.
func TestLocalInvalidateNeedsWindowBoundToQP(t *testing.T) {
	for name, key := range map[string]func(p *peer) uint32{
		"key 0":                    func(*peer) uint32 { return 0 },
		"an unknown key":           func(*peer) uint32 { return 0xabcdef00 },
		"a region":                 func(p *peer) uint32 { return p.h.mr.Key },
		"an unbound window":        func(p *peer) uint32 { return p.window(2).Key },
		"a type 1 window":          func(p *peer) uint32 { return p.mustBind(p.window(1), 0, 8) },
		"a window of another QP":   func(p *peer) uint32 { k := p.mustBind(p.window(2), 0, 8); p.replaceQP(verbs.QPTypeRC, nil); return k },
		"the last key of a window": func(p *peer) uint32 { return p.mustBind(p.window(2), 0, 8) - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, setup{}, func(p *peer) {
				k := key(p)
				p.post(1, verbs.OpLocalInv, 0, func(wr *verbs.SendWR) { wr.SGL, wr.InvalidateRKey = nil, verbs.RKey(k) })
				p.expect()
				p.wcs("1 MW_BIND_ERR")
				p.state(verbs.QPStateErr)
				p.post(2, verbs.OpSend, 0)
				p.wcs("2 WR_FLUSH_ERR")
			})
		})
	}
}

// uc/9: On UC, a failed bind stops only the send queue (SQE).
func TestFailedBindOnUCStopsSendQueue(t *testing.T) {
	eachUC(t, setup{}, func(p ucPeer) {
		w := p.window(2)
		key := p.mustBind(w, 0, 8)
		p.send(wire.OpWriteOnly, 0, p.at(0, 8), rkey(key), data(8))
		p.drops()
		p.post(1, verbs.OpSend, 4)
		p.bind(2, w, 0, 8)
		p.post(3, verbs.OpSend, 4)
		p.expect("UC SEND_ONLY 0 4B")
		p.wcs("1 SUCCESS SEND", "2 MW_BIND_ERR", "3 WR_FLUSH_ERR")
		p.state(verbs.QPStateSQE)
		p.send(wire.OpWriteOnly, 1, p.at(0, 8), rkey(key), data(8)) // the responder continues
		p.drops()
	})
}
