package engine

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

const windowRights = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic

// window allocates a window in the protection domain of the host.
func (p *peer) window(typ verbs.MWType) *nic.Window {
	p.Helper()
	w := must.Get(p.h.nic.AllocMW(p.h.pd, typ))(p)
	return w
}

// bind posts a bind of n bytes of the target memory at off, with a new key, and returns the key.
func (p *peer) bind(id uint64, w *nic.Window, off, n int, edits ...func(*verbs.SendWR, *Refs)) uint32 {
	p.Helper()
	wr := verbs.SendWR{WRID: id, Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, Bind: verbs.Bind{
		RKey: verbs.NextRKey(verbs.RKey(w.Key)),
		Info: verbs.BindInfo{Addr: p.h.mr.Addr + targetAt + uint64(off), Length: uint64(n), Access: windowRights},
	}}
	refs := Refs{Window: w, Region: p.h.mr}
	for _, e := range edits {
		e(&wr, &refs)
	}
	must.Do(p, p.q.PostSend(p.now, &wr, refs))
	return uint32(wr.Bind.RKey)
}

// mustBind binds a window and expects success.
func (p *peer) mustBind(w *nic.Window, off, n int, edits ...func(*verbs.SendWR, *Refs)) uint32 {
	p.Helper()
	key := p.bind(77, w, off, n, edits...)
	p.expect()
	p.wcs("77 SUCCESS BIND_MW")
	return key
}

func rights(a verbs.Access) func(*verbs.SendWR, *Refs) {
	return func(wr *verbs.SendWR, _ *Refs) { wr.Bind.Info.Access = a }
}

// regionIn registers the host's memory once more.
func (p *peer) regionIn(pd nic.PD, access verbs.Access) *nic.Region {
	p.Helper()
	mr := must.Get(p.h.nic.RegMR(pd, nic.Bytes(p.h.mem), p.h.mr.Addr, access))(p)
	return mr
}

// mw/1, mw/2, mw/3, mw/4, mw/9, mw/10: An invalid bind completes with MW_BIND_ERR,
// fails the QP and leaves the window unchanged.
func TestInvalidBindFails(t *testing.T) {
	type change = func(*peer, *verbs.SendWR, *Refs)
	region := func(access verbs.Access) change {
		return func(p *peer, _ *verbs.SendWR, r *Refs) { r.Region = p.regionIn(p.h.pd, access) }
	}
	const end = memSize - targetAt
	cases := []struct {
		name   string
		typ    verbs.MWType
		off, n int
		change change
	}{
		{"before the region", 2, -targetAt - 1, 8, nil},
		{"one byte beyond the region", 2, end - 7, 8, nil},
		{"beyond the region, type 1", 1, end - 7, 8, nil},
		{"longer than the region", 2, -targetAt, memSize + 1, nil},
		{"wraps at the end of the address space", 2, 0, 8, func(_ *peer, wr *verbs.SendWR, _ *Refs) { wr.Bind.Info.Addr = 1<<64 - 4 }},
		{"a region without MW_BIND", 2, 0, 8, region(allAccess &^ verbs.AccessMWBind)},
		{"remote writes to a region that is read only", 2, 0, 8, region(verbs.AccessMWBind | verbs.AccessRemoteRead)},
		{"remote atomics on a region that is read only", 2, 0, 8, func(p *peer, wr *verbs.SendWR, r *Refs) {
			region(verbs.AccessMWBind)(p, wr, r)
			wr.Bind.Info.Access = verbs.AccessRemoteAtomic
		}},
		{"a region of another domain", 2, 0, 8, func(p *peer, _ *verbs.SendWR, r *Refs) { r.Region = p.regionIn(p.h.allocPD(), allAccess) }},
		{"a window of another domain", 2, 0, 8, func(p *peer, wr *verbs.SendWR, r *Refs) {
			w := must.Get(p.h.nic.AllocMW(p.h.allocPD(), verbs.MWType2))(p)
			r.Window, wr.Bind.RKey = w, verbs.NextRKey(verbs.RKey(w.Key))
		}},
		{"a deregistered region", 2, 0, 8, func(p *peer, _ *verbs.SendWR, r *Refs) {
			r.Region = p.regionIn(p.h.pd, allAccess)
			must.Do(p, p.h.nic.DeregMR(r.Region))
		}},
		{"a deallocated window", 2, 0, 8, func(p *peer, _ *verbs.SendWR, r *Refs) { p.h.nic.DeallocMW(r.Window) }},
		{"type 2 of length 0", 2, 0, 0, nil},
		{"zero-based type 1", 1, 0, 8, func(_ *peer, wr *verbs.SendWR, _ *Refs) { wr.Bind.Info.Access |= verbs.AccessZeroBased }},
		{"invalid access flags", 2, 0, 8, func(_ *peer, wr *verbs.SendWR, _ *Refs) { wr.Bind.Info.Access |= verbs.AccessLocalWrite }},
		{"the key of another window", 2, 0, 8, func(_ *peer, wr *verbs.SendWR, _ *Refs) { wr.Bind.RKey += 0x100 }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			each(t, setup{}, func(p *peer) {
				w := p.window(c.typ)
				key := w.Key
				p.bind(1, w, c.off, c.n, func(wr *verbs.SendWR, r *Refs) {
					if c.change != nil {
						c.change(p, wr, r)
					}
				})
				p.post(2, verbs.OpSend, 4)
				p.expect()
				p.wcs("1 MW_BIND_ERR", "2 WR_FLUSH_ERR")
				p.state(verbs.QPStateErr)
				if w.Bound() || w.Key != key {
					p.Errorf("bound is %v, the key changed from %#x to %#x", w.Bound(), key, w.Key)
				}
			})
		})
	}
}

// mw/4: QP, window and region must be in the same protection domain.
func TestBindOnQPOfOtherDomainFails(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		pd := p.h.allocPD()
		p.replaceQP(verbs.QPTypeRC, func(c *QPConfig) { c.PD = pd })
		for typ := range verbs.MWType(2) {
			w := p.window(typ + 1)
			p.bind(1, w, 0, 8)
			p.expect()
			p.wcs("1 MW_BIND_ERR")
			p.h.modify(p.q, verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState)
			p.connect(p.q, nil)
		}
	})
}

// mw/5, mw/6: A window allows access to its range only, with the access flags of
// the window and not of the region.
func TestWindowLimitsRangeAndAccess(t *testing.T) {
	const off, size = 64, 256
	type try struct {
		op     wire.Operation
		off, n int
	}
	read, write := wire.OpReadRequest, wire.OpWriteOnly
	cases := []struct {
		name   string
		access verbs.Access
		try    try
		ok     bool
	}{
		{"READ of the window", windowRights, try{read, off, size}, true},
		{"WRITE of the last byte", windowRights, try{write, off + size - 1, 1}, true},
		{"FETCH_ADD of the last word", windowRights, try{wire.OpFetchAdd, off + size - 8, 8}, true},
		{"READ beyond the window", windowRights, try{read, off + size - 4, 8}, false},
		{"READ before the window", windowRights, try{read, off - 1, 8}, false},
		{"WRITE beyond the window", windowRights, try{write, off + size - 4, 5}, false},
		{"FETCH_ADD beyond the window", windowRights, try{wire.OpFetchAdd, off + size, 8}, false},
		{"READ with remote read", verbs.AccessRemoteRead, try{read, off, 8}, true},
		{"WRITE with remote read", verbs.AccessRemoteRead, try{write, off, 8}, false},
		{"READ with remote write", verbs.AccessRemoteWrite, try{read, off, 8}, false},
		{"FETCH_ADD with remote read and write", verbs.AccessRemoteRead | verbs.AccessRemoteWrite, try{wire.OpFetchAdd, off, 8}, false},
	}
	for _, c := range cases {
		for _, typ := range []verbs.MWType{1, 2} {
			t.Run(fmt.Sprintf("%s/type %d", c.name, typ), func(t *testing.T) {
				each(t, setup{}, func(p *peer) {
					// The region itself allows no remote access.
					mr := p.regionIn(p.h.pd, verbs.AccessLocalWrite|verbs.AccessMWBind)
					key := p.mustBind(p.window(typ), off, size, rights(c.access), func(_ *verbs.SendWR, r *Refs) { r.Region = mr })
					size := 0
					if c.try.op == write {
						size = c.try.n
					}
					p.send(c.try.op, 0, p.at(c.try.off, c.try.n), p.word(c.try.off, 1, 0), rkey(key), data(size), ackReq)
					if !c.ok {
						p.expect("NAK 0 access msn 0")
						p.expectMemoryUnchanged()
						p.state(verbs.QPStateErr)
						return
					}
					if p.h.nic.Output(p.now, p.ds) != 1 || p.q.State() != verbs.QPStateRTS {
						p.Errorf("rejected, state %v", p.q.State())
					}
				})
			})
		}
	}
}

// A zero-based type 2 window starts at address 0.
func TestZeroBasedWindowStartsAtZero(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		key := p.mustBind(p.window(2), 16, 32, rights(windowRights|verbs.AccessZeroBased))
		at := func(va uint64, n uint32) edit {
			return func(k *wire.Packet) { k.RETH = wire.RETH{VA: va, RKey: key, DMALen: n} }
		}
		p.send(wire.OpWriteOnly, 0, at(28, 4), payload([]byte("wxyz")), ackReq)
		p.expect("ACK 0 msn 1")
		if got := p.target(44, 4); string(got) != "wxyz" {
			p.Errorf("the end of the window has %q", got)
		}
		p.send(wire.OpReadRequest, 1, at(0, 32))
		p.expect("RR_ONLY 1 32B msn 2")
		if !bytes.Equal(p.got[0].Payload, p.target(16, 32)) {
			p.Error("other data")
		}
		p.send(wire.OpReadRequest, 2, at(29, 4))
		p.expect("NAK 2 access msn 2")
	})
}

// mw/7: A type 2 window works only on the QP that bound it, a type 1 window on all
// QPs of its protection domain.
func TestType2WindowWorksOnItsQPOnly(t *testing.T) {
	for _, typ := range []verbs.MWType{1, 2} {
		each(t, setup{}, func(p *peer) {
			key := p.mustBind(p.window(typ), 0, 8)
			p.send(wire.OpReadRequest, 0, p.at(0, 8), rkey(key))
			p.expect("RR_ONLY 0 8B msn 1")
			p.replaceQP(verbs.QPTypeRC, nil)
			p.send(wire.OpReadRequest, 0, p.at(0, 8), rkey(key))
			if typ == 1 {
				p.expect("RR_ONLY 0 8B msn 1")
			} else {
				p.expect("NAK 0 access msn 0")
			}
		})
	}
}
