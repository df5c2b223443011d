package verbsapi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var regionCases = []conformance.Case{{
	ID: "verbs/mr/address-as-asked", Cite: manual("ibv_reg_mr_iova(3)", "verbs/mr/1"),
	Run: onPair(setup{}, func(l *qpPair) {
		const at = 0x7_0000_1000
		buf := rig.Pattern(100, 3)
		mr, err := l.dut.PD.RegMR(verbs.MRInit{Buf: buf, Addr: at})
		l.dut.Must("a region at a chosen address", err)
		l.dut.Check(mr.Addr() == at && mr.Len() == len(buf), fmt.Sprintf("%d bytes at %#x", len(buf), uint64(at)), "%d at %#x", mr.Len(), mr.Addr())
		l.partner.postRecv(1, recvOffset, 64)
		wr := l.dut.sendWR(2, 0, 0)
		wr.SGL = []verbs.SGE{{Addr: at + 10, Length: 50, LKey: mr.LKey()}}
		l.dut.complete(wr)
		l.partner.expectMessage(1, recvOffset, buf[10:60])
	}),
}, {
	ID: "verbs/mr/keys-of-their-own", Cite: manual("ibv_reg_mr(3)", "verbs/mr/2"),
	Run: rig.Body(func(r *rig.Rig) {
		// L_Key and R_Key of a region may be equal.
		lkeys, rkeys := make(map[verbs.LKey]bool), make(map[verbs.RKey]bool)
		for i := range 200 {
			m := r.Memory(16, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
			r.Check(!lkeys[m.LKey()] && !rkeys[m.RKey()], fmt.Sprintf("new keys for region %d", i+1), "L_Key %#x, R_Key %#x of an earlier one", m.LKey(), m.RKey())
			lkeys[m.LKey()], rkeys[m.RKey()] = true, true
		}
	}),
}, {
	ID: "verbs/mr/remote-write-needs-local-write", Cite: manual("ibv_reg_mr(3)", "verbs/mr/3"),
	Run: rig.Body(func(r *rig.Rig) {
		buf := make([]byte, 64)
		for _, access := range []verbs.Access{verbs.AccessRemoteWrite, verbs.AccessRemoteAtomic, verbs.AccessRemoteWrite | verbs.AccessRemoteRead} {
			_, err := r.PD.RegMR(verbs.MRInit{Buf: buf, Access: access})
			r.MustFail(fmt.Sprintf("a region with rights %#x and no local write", uint32(access)), err, verbs.ErrInvalid)
		}
		for _, access := range []verbs.Access{0, verbs.AccessRemoteRead, verbs.AccessLocalWrite, verbs.AccessLocalWrite | rig.RemoteAccess(r)} {
			_, err := r.PD.RegMR(verbs.MRInit{Buf: buf, Access: access})
			r.Must(fmt.Sprintf("a region with rights %#x", uint32(access)), err)
		}
	}),
}, {
	ID: "verbs/mr/hints-are-no-rights", Cite: manual("ibv_reg_mr(3)", "verbs/mr/4"),
	Run: rig.Body(func(r *rig.Rig) {
		r.Memory(64, verbs.AccessLocalWrite|verbs.AccessRelaxedOrdering)
		r.Memory(64, verbs.AccessLocalWrite|verbs.AccessOptionalMask)
	}),
}, {
	ID: "verbs/mr/empty-region", Cite: manual("ibv_reg_mr(3)", "verbs/mr/6"), Level: conformance.Should,
	Run: onPair(setup{}, func(l *qpPair) {
		m := l.dut.Memory(0, verbs.AccessLocalWrite)
		l.dut.Check(m.Len() == 0, "a region of 0 bytes", "%d", m.Len())
		l.partner.postRecv(1, recvOffset, 64)
		wr := l.dut.sendWR(2, 0, 0)
		wr.SGL = m.SGL(0, 0)
		l.dut.complete(wr)
		l.partner.expectMessage(1, recvOffset, nil)
		wr.SGL = m.SGL(0, 1)
		l.dut.expectFailure("a byte of an empty region", wr)
	}),
}, {
	ID: "verbs/mr/overlapping-regions-stand-alone", Cite: manual("ibv_reg_mr(3)", "verbs/mr/7"),
	Run: onPair(setup{}, func(l *qpPair) {
		buf := rig.Pattern(128, 9)
		var regions [3]verbs.MR
		for i := range regions {
			var err error
			regions[i], err = l.dut.PD.RegMR(verbs.MRInit{Buf: buf[16*i:]})
			l.dut.Must(fmt.Sprintf("region %d over the same memory", i+1), err)
		}
		l.dut.Must("a region that can be closed", regions[0].Close())
		l.partner.postRecv(1, recvOffset, 64)
		wr := l.dut.sendWR(2, 0, 0)
		wr.SGL = []verbs.SGE{verbs.SGEOf(regions[1], 4, 60)}
		l.dut.complete(wr)
		l.partner.expectMessage(1, recvOffset, buf[20:80])
	}),
}, {
	ID: "verbs/mr/beyond-its-end", Cite: manual("ibv_post_send(3)", "verbs/mr/8"),
	// verbs/flush/behind-the-cause checks the status.
	Run: rig.Body(func(r *rig.Rig) {
		d := openPartner(r)
		for _, off := range []int{-1, 1} {
			l := d.newPair(setup{})
			m := r.Memory(64, verbs.AccessLocalWrite)
			l.partner.postRecv(1, recvOffset, 128)
			wr := l.dut.sendWR(2, 0, 0)
			wr.SGL = []verbs.SGE{{Addr: m.Addr() + uint64(off), Length: 64, LKey: m.LKey()}}
			l.dut.expectFailure(fmt.Sprintf("64 bytes from %d on of 64", off), wr)
		}
	}),
}, {
	ID: "verbs/mr/closed-local-key", Cite: manual("ibv_dereg_mr(3)", "verbs/mr/9"),
	Run: onPair(setup{}, func(l *qpPair) {
		m := l.dut.Memory(64, verbs.AccessLocalWrite)
		wr := l.dut.sendWR(2, 0, 0)
		wr.SGL = m.SGL(0, 64)
		l.partner.postRecv(1, recvOffset, 64)
		l.dut.Must("a region that can be closed", m.Close())
		l.dut.expectFailure("a request from a closed region", wr)
	}),
}, {
	ID: "verbs/mr/old-keys-open-nothing-new", Cite: manual("ibv_dereg_mr(3)", "verbs/mr/9"), Level: conformance.Should,
	Run: onPair(setup{}, func(l *qpPair) {
		// Keys may be reused later. If the next registration had them, a late request
		// would access the new region.
		buf := make([]byte, 64)
		// With remote read: a device need not allocate an R_Key without remote
		// access.
		old, err := l.dut.PD.RegMR(verbs.MRInit{Buf: buf, Access: verbs.AccessRemoteRead})
		l.dut.Must("a region", err)
		was, rkey := verbs.SGEOf(old, 0, 64), old.RKey()
		l.dut.Must("a region that can be closed", old.Close())
		again, err := l.dut.PD.RegMR(verbs.MRInit{Buf: buf, Addr: was.Addr, Access: verbs.AccessRemoteRead})
		l.dut.Must("the region again", err)
		l.dut.Check(again.LKey() != was.LKey && again.RKey() != rkey, "other keys than before", "L_Key %#x, R_Key %#x", again.LKey(), again.RKey())
		wr := l.dut.sendWR(2, 0, 0)
		wr.SGL = []verbs.SGE{was}
		l.partner.postRecv(1, recvOffset, 64)
		l.dut.expectFailure("a request with the old key", wr)
	}),
}, {
	ID: "verbs/mr/busy-with-a-window", Cite: manual("ibv_dereg_mr(3)", "verbs/mr/10"), Needs: verbs.CapMWType2,
	Run: onPair(setup{}, func(l *qpPair) {
		m := l.dut.Memory(64, regionAccess(l.dut.Rig, rig.RemoteAccess(l.dut.Rig)))
		mw := l.dut.newWindow(verbs.MWType2)
		l.dut.bind(mw, bindAll(m, verbs.AccessRemoteRead))
		l.dut.MustFail("closing a region with a bound window", m.Close(), nil) // the manual page names no error
		l.dut.Must("a window that can be freed", mw.Close())
		l.dut.Must("a region without windows that can be closed", m.Close())
	}),
}}
