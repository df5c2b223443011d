package verbsapi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var windowCases = []conformance.Case{{
	ID: "verbs/mw/type-1-bind", Cite: manual("ibv_bind_mw(3)", "verbs/mw/1"), Needs: verbs.CapMWType1,
	Run: onPair(setup{}, func(l *qpPair) {
		mw := l.dut.newWindow(verbs.MWType1)
		keys := map[verbs.RKey]bool{mw.RKey(): true}
		for i := range 3 {
			key := l.dut.bind(mw, bindRange(l.dut.mem, 64*i, 64, verbs.AccessRemoteRead))
			l.dut.Check(!keys[key], fmt.Sprintf("a new key for bind %d", i+1), "%#x again", key)
			l.dut.Check(mw.RKey() == key, fmt.Sprintf("a window with the key %#x", key), "%#x", mw.RKey())
			keys[key] = true
		}
	}),
}, {
	ID: "verbs/mw/type-2-bind", Cite: manual("ibv_post_send(3)", "verbs/mw/2"), Needs: verbs.CapMWType2,
	Run: onPair(setup{}, func(l *qpPair) {
		mw := l.dut.newWindow(verbs.MWType2)
		key := l.dut.bind(mw, bindRange(l.dut.mem, 0, 64, verbs.AccessRemoteRead))
		l.dut.Check(mw.RKey() == key, fmt.Sprintf("a window with the key %#x", key), "%#x", mw.RKey())
	}),
}, {
	ID: "verbs/mw/verb-is-for-type-1", Cite: manual("ibv_bind_mw(3)", "verbs/mw/3"), Needs: verbs.CapMWType2,
	Run: onPair(setup{}, func(l *qpPair) {
		mw := l.dut.newWindow(verbs.MWType2)
		was := mw.RKey()
		_, err := l.dut.qp.BindMW(mw, bindID, verbs.SendSignaled, bindRange(l.dut.mem, 0, 64, verbs.AccessRemoteRead))
		l.dut.MustFail("ibv_bind_mw with a type 2 window", err, verbs.ErrInvalid)
		l.dut.Check(mw.RKey() == was, fmt.Sprintf("a window with the key %#x still", was), "%#x", mw.RKey())
	}),
}, {
	ID: "verbs/mw/work-request-is-for-type-2",
	// The manual page does not say what happens with a type 1 window: a device may
	// reject the post or complete it with an error.
	Cite: manual("ibv_post_send(3)", "verbs/mw/3"), Level: conformance.Should, Needs: verbs.CapMWType1,
	Run: onPair(setup{}, func(l *qpPair) {
		mw := l.dut.newWindow(verbs.MWType1)
		l.dut.expectFailure("a type 1 window in a work request", bindWR(mw, verbs.NextRKey(mw.RKey()), bindRange(l.dut.mem, 0, 64, verbs.AccessRemoteRead)))
	}),
}, {
	ID: "verbs/mw/bind-needs-the-right", Cite: manual("ibv_bind_mw(3)", "verbs/mw/4"), Needs: verbs.CapMWType2,
	Run: rig.Body(func(r *rig.Rig) {
		d := openPartner(r)
		for _, b := range []struct {
			what       string
			has, wants verbs.Access
		}{
			{"a region without MW_BIND", verbs.AccessLocalWrite | verbs.AccessRemoteRead, verbs.AccessRemoteRead},
			{"writing a region without local write", verbs.AccessRemoteRead | verbs.AccessMWBind, verbs.AccessRemoteWrite},
		} {
			l := d.newPair(setup{})
			l.dut.expectBindFails(b.what, bindAll(r.Memory(64, b.has), b.wants))
		}
	}),
}, {
	ID: "verbs/mw/bind-stays-in-its-region", Cite: manual("ibv_bind_mw(3)", "verbs/mw/5"), Needs: verbs.CapMWType2,
	Run: rig.Body(func(r *rig.Rig) {
		d := openPartner(r)
		for _, off := range []int{-1, 1} {
			l := d.newPair(setup{})
			m := r.Memory(64, regionAccess(r, rig.RemoteAccess(r)))
			l.dut.expectBindFails(fmt.Sprintf("64 bytes from %d on of 64", off), bindRange(m, off, 64, verbs.AccessRemoteRead))
		}
	}),
}, {
	ID: "verbs/mw/bind-stays-in-its-domain", Cite: manual("ibv_bind_mw(3)", "verbs/mw/6"), Needs: verbs.CapMWType2,
	Run: onPair(setup{}, func(l *qpPair) {
		m := l.dut.MemoryIn(otherPD(l.dut.Rig), 64, regionAccess(l.dut.Rig, rig.RemoteAccess(l.dut.Rig)))
		l.dut.expectBindFails("a region of another domain", bindAll(m, verbs.AccessRemoteRead))
	}),
}, {
	ID:   "verbs/mw/type-1-is-not-zero-based",
	Cite: manual("o10-36.2.2", "verbs/mw/13"), Needs: verbs.CapMWType1 | verbs.CapZeroBased,
	Run: onPair(setup{}, func(l *qpPair) {
		_, err := l.dut.qp.BindMW(l.dut.newWindow(verbs.MWType1), bindID, verbs.SendSignaled, bindRange(l.dut.mem, 0, 64, verbs.AccessRemoteRead|verbs.AccessZeroBased))
		if err == nil {
			l.dut.ExpectCompletion(bindID, verbs.WCMWBindErr)
		}
	}),
}, {
	ID: "verbs/mw/type-2-is-bound-when-free", Cite: manual("o10-37.2.30", "verbs/mw/14"), Needs: verbs.CapMWType2,
	Run: onPair(setup{}, func(l *qpPair) {
		mw := l.dut.newWindow(verbs.MWType2)
		key := l.dut.bind(mw, bindRange(l.dut.mem, 0, 64, verbs.AccessRemoteRead))
		l.dut.PostSend(l.dut.qp, bindWR(mw, verbs.NextRKey(key), bindRange(l.dut.mem, 256, 64, verbs.AccessRemoteRead)))
		l.dut.ExpectCompletion(bindID, verbs.WCMWBindErr)
	}),
}, {
	ID: "verbs/mw/type-2-opens-some-bytes", Cite: manual("o10-37.2.40", "verbs/mw/15"), Needs: verbs.CapMWType2,
	Run: onPair(setup{}, func(l *qpPair) { l.dut.expectBindFails("no bytes", bindRange(l.dut.mem, 0, 0, verbs.AccessRemoteRead)) }),
}}

// bindID is the work request ID of binds.
const bindID = 1000

// newWindow allocates a window.
func (e *endpoint) newWindow(kind verbs.MWType) verbs.MW {
	mw, err := e.PD.AllocMW(kind)
	e.Must(fmt.Sprintf("a window of %v", kind), err)
	e.Check(mw.Type() == kind, fmt.Sprintf("a window of %v", kind), "%v", mw.Type())
	return mw
}

// bindAll returns the BindInfo for a whole region.
func bindAll(m *rig.Memory, access verbs.Access) verbs.BindInfo {
	return bindRange(m, 0, m.Len(), access)
}

// bindRange returns the BindInfo for n bytes of a region from off on.
func bindRange(m *rig.Memory, off, n int, access verbs.Access) verbs.BindInfo {
	return verbs.BindInfo{MR: m.MR, Addr: m.Addr() + uint64(off), Length: uint64(n), Access: access}
}

// bindWR returns a request that binds a type 2 window.
func bindWR(mw verbs.MW, key verbs.RKey, info verbs.BindInfo) verbs.SendWR {
	return verbs.SendWR{WRID: bindID, Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, Bind: verbs.Bind{MW: mw, RKey: key, Info: info}}
}

// bind binds a window, by ibv_bind_mw for type 1 and by a work request for type 2, and
// returns its R_Key.
func (e *endpoint) bind(mw verbs.MW, info verbs.BindInfo) verbs.RKey {
	key := verbs.NextRKey(mw.RKey())
	if mw.Type() == verbs.MWType1 {
		var err error
		key, err = e.qp.BindMW(mw, bindID, verbs.SendSignaled, info)
		e.Must("a window that can be bound", err)
	} else {
		e.PostSend(e.qp, bindWR(mw, key, info))
	}
	wc := e.ExpectCompletion(bindID, verbs.WCSuccess)
	e.Check(wc.Opcode == verbs.WCOpBindMW, verbs.WCOpBindMW.String(), "%v", wc.Opcode)
	return key
}

// expectBindFails fails the case if a new type 2 window can be bound like this.
func (e *endpoint) expectBindFails(what string, info verbs.BindInfo) {
	mw := e.newWindow(verbs.MWType2)
	e.expectFailureStatus("a bind to "+what, bindWR(mw, verbs.NextRKey(mw.RKey()), info), verbs.WCMWBindErr)
}

// bindReadable binds a window to a part of the endpoint's memory with remote read, and
// returns its remote address.
func (e *endpoint) bindReadable(mw verbs.MW, off, n int) verbs.Remote {
	info := bindRange(e.mem, off, n, verbs.AccessRemoteRead)
	return verbs.Remote{Addr: info.Addr, RKey: e.bind(mw, info)}
}

// bindNew binds a new window, and returns its remote address.
func (e *endpoint) bindNew(kind verbs.MWType, info verbs.BindInfo) verbs.Remote {
	return verbs.Remote{Addr: info.Addr, RKey: e.bind(e.newWindow(kind), info)}
}
