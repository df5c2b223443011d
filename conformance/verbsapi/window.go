package verbsapi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var windowCases = []conformance.Case{{
	ID: "verbs/mw/type-1-bind", Cite: cite("ibv_bind_mw(3)", "verbs/mw/1"), Needs: verbs.CapMWType1,
	Title:   "A type 1 window has a new key after every bind, which the verb and the window return",
	Sends:   "three binds of one window, one after the other; then three at once, which wait for a READ if there are any",
	Expects: "a completion of BIND_MW and a new key for each; the window has the last",
	Defects: []string{"BindKeepsKey", "MWKeyStale", "BindKeyFromExecuted"}, Run: onPair(setup{}, func(l *qpPair) {
		mw := l.dut.newWindow(verbs.MWType1)
		keys := map[verbs.RKey]bool{mw.RKey(): true}
		for i := range 3 {
			key := l.dut.bind(mw, bindRange(l.dut.mem, 64*i, 64, verbs.AccessRemoteRead))
			l.dut.Check(!keys[key], fmt.Sprintf("a new key for bind %d", i+1), "%#x again", key)
			l.dut.Check(mw.RKey() == key, fmt.Sprintf("a window with the key %#x", key), "%#x", mw.RKey())
			keys[key] = true
		}
		var last verbs.RKey
		reads := l.dut.Caps.Has(verbs.CapRC)
		if reads {
			l.dut.PostSend(l.dut.qp, l.dut.readWR(readID, 64, l.partner.mem.Remote(0)))
		}
		for i := range 3 {
			last = rig.Result(l.dut.qp.BindMW(mw, bindID+uint64(i), verbs.SendSignaled|verbs.SendFence, bindRange(l.dut.mem, 64*i, 64, verbs.AccessRemoteRead)))(l.dut, "a bind")
			l.dut.Check(!keys[last], fmt.Sprintf("a new key for bind %d", i+4), "%#x again", last)
			keys[last] = true
		}
		if reads {
			l.dut.ExpectCompletion(readID, verbs.WCSuccess)
		}
		for i := range 3 {
			l.dut.ExpectCompletion(bindID+uint64(i), verbs.WCSuccess)
		}
		l.dut.Check(mw.RKey() == last, fmt.Sprintf("a window with the key %#x", last), "%#x", mw.RKey())
	}),
}, {
	ID: "verbs/mw/type-2-bind", Cite: cite("ibv_post_send(3)", "verbs/mw/2"), Needs: verbs.CapMWType2,
	Title:   "A type 2 window has the key of the bind request after the bind",
	Sends:   "a bind with the next key of the window",
	Expects: "a completion of BIND_MW, and a window with this key",
	Defects: []string{"MWKeyStale", "MW2Refused"}, Run: onPair(setup{}, func(l *qpPair) {
		mw := l.dut.newWindow(verbs.MWType2)
		key := l.dut.bind(mw, bindRange(l.dut.mem, 0, 64, verbs.AccessRemoteRead))
		l.dut.Check(mw.RKey() == key, fmt.Sprintf("a window with the key %#x", key), "%#x", mw.RKey())
	}),
}, {
	ID: "verbs/mw/verb-is-for-type-1", Cite: cite("ibv_bind_mw(3)", "verbs/mw/3"), Needs: verbs.CapMWType2,
	Title:   "ibv_bind_mw is for type 1 windows only",
	Sends:   "a type 2 window to ibv_bind_mw",
	Expects: "it is refused, and the window is unchanged",
	Defects: []string{"MWTypesMixed"}, Run: onPair(setup{}, func(l *qpPair) {
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
	Cite: cite("ibv_post_send(3)", "verbs/mw/3"), Level: conformance.Should, Needs: verbs.CapMWType1,
	Title:   "The work request BIND_MW is for type 2 windows only",
	Sends:   "a type 1 window in a work request",
	Expects: "it is refused or completes with an error",
	Defects: []string{"MWTypesMixed"}, Run: onPair(setup{}, func(l *qpPair) {
		mw := l.dut.newWindow(verbs.MWType1)
		l.dut.expectFailure("a type 1 window in a work request", bindWR(mw, verbs.NextRKey(mw.RKey()), bindRange(l.dut.mem, 0, 64, verbs.AccessRemoteRead)))
	}),
}, {
	ID: "verbs/mw/bind-needs-the-right", Cite: cite("ibv_bind_mw(3)", "verbs/mw/4"), Needs: verbs.CapMWType2,
	Title:   "A window cannot be bound to a region without MW_BIND, nor with remote write to one without local write",
	Sends:   "binds to a region without MW_BIND; and, for remote write, to one without local write",
	Expects: "both are refused or complete with MW_BIND_ERR",
	Defects: []string{"BindUnchecked"}, Run: rig.PairBody(func(d *rig.Pair) {
		for _, b := range []struct {
			what       string
			has, wants verbs.Access
		}{
			{"a region without MW_BIND", verbs.AccessLocalWrite | verbs.AccessRemoteRead, verbs.AccessRemoteRead},
			{"writing a region without local write", verbs.AccessRemoteRead | verbs.AccessMWBind, verbs.AccessRemoteWrite},
		} {
			l := newPair(d, setup{})
			l.dut.expectBindFails(b.what, bindAll(d.DUT.Memory(64, b.has), b.wants))
		}
	}),
}, {
	ID: "verbs/mw/bind-stays-in-its-region", Cite: cite("ibv_bind_mw(3)", "verbs/mw/5"), Needs: verbs.CapMWType2,
	Title:   "A window cannot be bound beyond its region",
	Sends:   "binds that begin a byte before the region, and that end a byte after it",
	Expects: "both are refused or complete with MW_BIND_ERR",
	Defects: []string{"BindUnchecked"}, Run: rig.PairBody(func(d *rig.Pair) {
		for _, off := range []int{-1, 1} {
			l := newPair(d, setup{})
			m := d.DUT.Memory(64, regionAccess(d.DUT, rig.RemoteAccess(d.DUT)))
			l.dut.expectBindFails(fmt.Sprintf("64 bytes from %d on of 64", off), bindRange(m, off, 64, verbs.AccessRemoteRead))
		}
	}),
}, {
	ID: "verbs/mw/bind-stays-in-its-domain", Cite: cite("ibv_bind_mw(3)", "verbs/mw/6"), Needs: verbs.CapMWType2,
	Title:   "Queue pair, window and region of a bind must be in the same protection domain",
	Sends:   "a bind of a window of the partner's device, and one to its region; a bind to a region of another domain",
	Expects: "each is refused, or the last completes with MW_BIND_ERR",
	Defects: []string{"BindUnchecked", "BindForeignRegion"}, Run: onPair(setup{}, func(l *qpPair) {
		own, foreign := l.dut.newWindow(verbs.MWType2), l.partner.newWindow(verbs.MWType2)
		l.dut.expectPostRefused("a bind of a window of another device", bindWR(foreign, verbs.NextRKey(foreign.RKey()), bindAll(l.dut.mem, verbs.AccessRemoteRead)), nil)
		l.dut.expectPostRefused("a bind to a region of another device", bindWR(own, verbs.NextRKey(own.RKey()), bindAll(l.partner.mem, verbs.AccessRemoteRead)), nil)
		m := l.dut.MemoryIn(otherPD(l.dut.Rig), 64, regionAccess(l.dut.Rig, rig.RemoteAccess(l.dut.Rig)))
		l.dut.expectBindFails("a region of another domain", bindAll(m, verbs.AccessRemoteRead))
	}),
}, {
	ID:   "verbs/mw/type-1-is-not-zero-based",
	Cite: cite("o10-36.2.2", "verbs/mw/13"), Needs: verbs.CapMWType1 | verbs.CapZeroBased,
	Title:   "A type 1 window cannot be zero-based",
	Sends:   "a bind of a type 1 window with the flag for addresses from 0 on",
	Expects: "it is refused or completes with MW_BIND_ERR",
	Defects: []string{"BindDefects"}, Run: onPair(setup{}, func(l *qpPair) {
		_, err := l.dut.qp.BindMW(l.dut.newWindow(verbs.MWType1), bindID, verbs.SendSignaled, bindRange(l.dut.mem, 0, 64, verbs.AccessRemoteRead|verbs.AccessZeroBased))
		if err == nil {
			l.dut.ExpectCompletion(bindID, verbs.WCMWBindErr)
		}
	}),
}, {
	ID: "verbs/mw/type-2-is-bound-when-free", Cite: cite("o10-37.2.30", "verbs/mw/14"), Needs: verbs.CapMWType2,
	Title:   "A type 2 window that is bound cannot be bound again",
	Sends:   "a bind, and another one of the same window with the next key",
	Expects: "the second is accepted, since an earlier request might have invalidated the window, and completes with MW_BIND_ERR",
	Defects: []string{"RebindBound"}, Run: onPair(setup{}, func(l *qpPair) {
		mw := l.dut.newWindow(verbs.MWType2)
		key := l.dut.bind(mw, bindRange(l.dut.mem, 0, 64, verbs.AccessRemoteRead))
		l.dut.PostSend(l.dut.qp, bindWR(mw, verbs.NextRKey(key), bindRange(l.dut.mem, 256, 64, verbs.AccessRemoteRead)))
		l.dut.ExpectCompletion(bindID, verbs.WCMWBindErr)
	}),
}, {
	ID: "verbs/mw/type-2-opens-some-bytes", Cite: cite("o10-37.2.40", "verbs/mw/15"), Needs: verbs.CapMWType2,
	Title:   "A type 2 window cannot be bound to no bytes",
	Sends:   "a bind to 0 bytes of a region",
	Expects: "it is refused or completes with MW_BIND_ERR",
	Defects: []string{"BindDefects"}, Run: onPair(setup{}, func(l *qpPair) { l.dut.expectBindFails("no bytes", bindRange(l.dut.mem, 0, 0, verbs.AccessRemoteRead)) }),
}}

// bindID is the work request ID of binds, and readID that of a READ before them.
const bindID, readID = 1000, 999

// newWindow allocates a memory window, and checks its type.
func (e *endpoint) newWindow(kind verbs.MWType) verbs.MW {
	mw := rig.Result(e.PD.AllocMW(kind))(e, fmt.Sprintf("a window of %v", kind))
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

// expectBindFails fails the case if a new type 2 window can be bound to info. what describes info.
func (e *endpoint) expectBindFails(what string, info verbs.BindInfo) {
	mw := e.newWindow(verbs.MWType2)
	e.expectFailureStatus("a bind to "+what, bindWR(mw, verbs.NextRKey(mw.RKey()), info), verbs.WCMWBindErr)
}

// bindReadable binds a window to n bytes of the endpoint's memory from off on, with remote read,
// and returns its remote address.
func (e *endpoint) bindReadable(mw verbs.MW, off, n int) verbs.Remote {
	info := bindRange(e.mem, off, n, verbs.AccessRemoteRead)
	return verbs.Remote{Addr: info.Addr, RKey: e.bind(mw, info)}
}

// bindWritable binds a window to n bytes of the endpoint's memory from off on, with remote read and
// write, and returns its remote address.
func (e *endpoint) bindWritable(mw verbs.MW, off, n int) verbs.Remote {
	info := bindRange(e.mem, off, n, verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	return verbs.Remote{Addr: info.Addr, RKey: e.bind(mw, info)}
}

// bindNew binds a new window, and returns its remote address.
func (e *endpoint) bindNew(kind verbs.MWType, info verbs.BindInfo) verbs.Remote {
	return verbs.Remote{Addr: info.Addr, RKey: e.bind(e.newWindow(kind), info)}
}

// windowPeerCases test remote access through windows.
var windowPeerCases = alsoOverRD([]conformance.Case{
	windowRangeCase("type-1", verbs.CapMWType1, verbs.MWType1),
	windowRangeCase("type-2", verbs.CapMWType2, verbs.MWType2),
	{
		ID:   "verbs/mw/peers-have-the-rights-of-the-window",
		Cite: cite("ibv_bind_mw(3)", "verbs/mw/11"), Needs: verbs.CapMWType2,
		Title:   "Access through a window has the rights of the window, whatever the region grants",
		Sends:   "a READ and a WRITE of the peer through a window for reads, and through one for writes, of a region for both",
		Expects: "the permitted one is executed; the other fails, with memory unchanged",
		Defects: []string{"WindowRights"}, Run: rig.PairBody(func(d *rig.Pair) {
			m := d.DUT.Memory(256, regionAccess(d.DUT, rig.RemoteAccess(d.DUT)))
			for _, w := range []struct {
				access           verbs.Access
				granted, refused verbs.WROpcode
			}{
				{verbs.AccessRemoteRead, verbs.OpRDMARead, verbs.OpRDMAWrite},
				{verbs.AccessRemoteWrite, verbs.OpRDMAWrite, verbs.OpRDMARead},
			} {
				l := newPair(d, setup{})
				at := l.dut.bindNew(verbs.MWType2, bindRange(m, 64, 64, w.access))
				l.expectExecuted(w.granted, m, at, 64)
				l.expectRefused(fmt.Sprintf("%v through a window with rights %#x", w.refused, uint32(w.access)), l.partner.rdmaWR(w.refused, at))
			}
			d.DUT.ExpectUntouched(m)
		}),
	},
	{
		ID:   "verbs/mw/atomics-through-a-window",
		Cite: cite("ibv_bind_mw(3)", "verbs/mw/11"), Needs: verbs.CapMWType2 | verbs.CapAtomics,
		Title:   "An atomic through a window is executed if the window grants it, and fails if not",
		Sends:   "fetch-and-adds of the peer through a window for atomics, and through one for reads and writes",
		Expects: "the original word from the first; the second fails, and the word is unchanged",
		Defects: []string{"NoWindowAtomics"}, Run: onPair(setup{}, func(l *qpPair) {
			l.dut.setWord(41)
			word := func(access verbs.Access) verbs.Remote {
				return l.dut.bindNew(verbs.MWType2, bindRange(l.dut.mem, l.dut.mem.WordOffset(0), 64, access))
			}
			l.partner.expectAtomic(verbs.OpAtomicFetchAdd, word(verbs.AccessRemoteAtomic), verbs.Atomic{CompareAdd: 1}, 41)
			at := word(verbs.AccessRemoteRead | verbs.AccessRemoteWrite)
			l.expectRefused("do atomics through a window for reads and writes", l.partner.atomicWR(9, verbs.OpAtomicFetchAdd, at, verbs.Atomic{CompareAdd: 1}))
			l.dut.Check(l.dut.readWord() == 42, "the word unchanged, 42", "%d", l.dut.readWord())
		}),
	},
	{
		ID: "verbs/mw/type-2-on-its-own-queue-pair", Cite: cite("", "verbs/mw/12"), Needs: verbs.CapMWType2,
		Title:   "A type 2 window grants access to the peer of the queue pair that bound it, and to no others",
		Sends:   "a READ through a window by the peer of the queue pair that bound it, and one by the peer of another of the same domain",
		Expects: "the bytes for the first; the second fails",
		Defects: []string{"WindowOwner"}, Run: rig.PairBody(func(d *rig.Pair) {
			own, other := newPair(d, setup{}), newPair(d, setup{})
			at := own.dut.bindReadable(own.dut.newWindow(verbs.MWType2), 256, 64)
			own.partner.expectRead(at, own.dut.mem.Buf[256:320])
			other.expectRefused("read through a window of another queue pair", other.partner.readWR(9, 16, at))
		}),
	},
	{
		ID:   "verbs/mw/zero-based",
		Cite: cite("o10-36.2.2", "verbs/mw/13"), Needs: verbs.CapMWType2 | verbs.CapZeroBased,
		Title:   "The addresses of a zero-based window begin at 0",
		Sends:   "READs of the partner at 0 and at 56 of a zero-based window of 64 bytes, then at the address in the region",
		Expects: "the first and the last bytes of the window; the last READ fails",
		Defects: []string{"ZeroBasedIgnored"}, Run: onPair(setup{}, func(l *qpPair) {
			at := l.dut.bindNew(verbs.MWType2, bindRange(l.dut.mem, 256, 64, verbs.AccessRemoteRead|verbs.AccessZeroBased))
			zero, last := verbs.Remote{RKey: at.RKey}, verbs.Remote{Addr: 56, RKey: at.RKey}
			l.partner.expectRead(zero, l.dut.mem.Buf[256:264])
			l.partner.expectRead(last, l.dut.mem.Buf[312:320])
			l.expectRefused("read a zero-based window at the region's address", l.partner.readWR(9, 8, at))
		}),
	},
	{
		ID: "verbs/mw/empty-bind-closes-type-1", Cite: cite("o10-37.2.40", "verbs/mw/15", "verbs/mw/1"), Needs: verbs.CapMWType1,
		Title:   "Binding a type 1 window again, or to no bytes, invalidates its old key",
		Sends:   "two binds to the same 64 bytes, the first also for writes, and one to none; READs of the peer by the keys of the first two after each, and by the last key; a WRITE by the second key",
		Expects: "the bytes for the key of the last bind, unless that was empty; the others fail",
		Defects: []string{"BindDefects", "OldWindowKeyWorks", "RebindKeepsRights"}, Run: rig.PairBody(func(d *rig.Pair) {
			l := newPair(d, setup{})
			mw := l.dut.newWindow(verbs.MWType1)
			refused := func(op verbs.WROpcode, key string, at verbs.Remote) {
				other := newPair(d, setup{})
				other.expectRefused(fmt.Sprintf("%v by the %s", op, key), other.partner.rdmaWR(op, at))
			}
			first := l.dut.bindWritable(mw, 256, 64)
			l.partner.expectRead(first, l.dut.mem.Buf[256:264])
			second := l.dut.bindReadable(mw, 256, 64)
			l.partner.expectRead(second, l.dut.mem.Buf[256:264])
			refused(verbs.OpRDMARead, "old key of a window that was bound again", first)
			refused(verbs.OpRDMAWrite, "new key of a window that was bound again, for reads", second)
			closed := l.dut.bindReadable(mw, 256, 0)
			refused(verbs.OpRDMARead, "old key of a window that was closed", second)
			refused(verbs.OpRDMARead, "new key of a window that was closed", closed)
		}),
	},
	{
		ID: "verbs/mw/keys-wrap", Cite: cite("ibv_bind_mw(3)", "verbs/mw/1", "verbs/mw/2", "verbs/mr/9"), Needs: verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapLocalInv,
		Title:   "Windows and regions keep keys of their own when the low byte of their keys has wrapped",
		Sends:   "300 binds of a type 1 window, 300 binds and invalidates of a type 2 window and 300 registrations; READs of the peer by every hundredth key",
		Expects: "keys that differ from the one before and from those of the others, and the bytes for each READ",
		Defects: []string{"TagCarries"}, Run: onPair(setup{}, func(l *qpPair) {
			mws := []verbs.MW{l.dut.newWindow(verbs.MWType1), l.dut.newWindow(verbs.MWType2)}
			info := bindRange(l.dut.mem, 256, 64, verbs.AccessRemoteRead)
			for i := range 300 {
				for _, mw := range mws {
					was := mw.RKey()
					at := verbs.Remote{Addr: info.Addr, RKey: l.dut.bind(mw, info)}
					l.dut.Check(at.RKey != was && at.RKey == mw.RKey(), fmt.Sprintf("another key than %#x", was), "%#x, and %#x of the window", at.RKey, mw.RKey())
					if i%100 == 99 {
						l.partner.expectRead(at, l.dut.mem.Buf[256:320])
					}
					if mw.Type() == verbs.MWType2 {
						l.dut.execute(verbs.SendWR{WRID: 5, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: at.RKey})
					}
				}
				m := l.dut.Memory(16, verbs.AccessRemoteRead)
				l.dut.Check(m.RKey() != mws[0].RKey() && m.RKey() != mws[1].RKey() && mws[0].RKey() != mws[1].RKey(), "keys of their own", "region %#x, windows %#x and %#x", m.RKey(), mws[0].RKey(), mws[1].RKey())
				if i%100 == 99 {
					l.partner.expectRead(m.Remote(0), m.Buf)
				}
				l.dut.Must("a region that can be closed", m.Close())
			}
		}),
	},
	{
		ID: "verbs/mw/free-while-bound", Cite: cite("ibv_dealloc_mw(3)", "verbs/mw/7"), Needs: verbs.CapMWType2,
		Title:   "A bound window can be freed, and its key is invalid then",
		Sends:   "a READ of the peer through a window; another when the window has been freed",
		Expects: "the bytes for the first; the second fails",
		Defects: []string{"BoundMWBusy"}, Run: onPair(setup{}, func(l *qpPair) {
			mw := l.dut.newWindow(verbs.MWType2)
			at := l.dut.bindReadable(mw, 256, 64)
			l.partner.expectRead(at, l.dut.mem.Buf[256:320])
			l.dut.Must("a bound window that can be freed", mw.Close())
			l.expectRefused("read through a window that has been freed", l.partner.readWR(9, 16, at))
		}),
	},
	{
		ID:   "verbs/mw/local-invalidate",
		Cite: cite("ibv_post_send(3)", "verbs/mw/8"), Needs: verbs.CapMWType2 | verbs.CapLocalInv,
		Title:   "A local invalidate completes as LOCAL_INV and revokes the key; the window can be bound again",
		Sends:   "a bind for reads and writes, a local invalidate, a bind with the next key to more bytes for reads; a READ of the peer by the new key, and one by the old; again with a WRITE by the new key as the last",
		Expects: "a completion of LOCAL_INV; the bytes for the new key; the READ by the old one and the WRITE fail",
		Defects: []string{"LocalInvNoop", "OldWindowKeyWorks", "RebindKeepsRights"}, Run: rig.PairBody(func(d *rig.Pair) {
			for _, last := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpRDMAWrite} {
				l := newPair(d, setup{})
				mw := l.dut.newWindow(verbs.MWType2)
				old := l.dut.bindWritable(mw, 256, 64)
				wc := l.dut.execute(verbs.SendWR{WRID: 5, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: old.RKey})
				l.dut.Check(wc.Opcode == verbs.WCOpLocalInv, verbs.WCOpLocalInv.String(), "%v", wc.Opcode)
				fresh := l.dut.bindReadable(mw, 224, 128) // includes the old range
				l.partner.expectRead(fresh, l.dut.mem.Buf[224:352])
				at, what := old, "READ by a key that was invalidated"
				if last == verbs.OpRDMAWrite {
					at, what = fresh, "WRITE by the key of a bind for reads"
				}
				l.expectRefused(what, l.partner.rdmaWR(last, at))
			}
		}),
	},
})

// windowRangeCase returns the case that a peer can access the bytes of a memory window of this type,
// and no other bytes of its region.
func windowRangeCase(name string, needs verbs.Caps, kind verbs.MWType) conformance.Case {
	return conformance.Case{
		ID:    "verbs/mw/peers-stay-within-" + name,
		Title: "Through a " + withSpaces(name) + " window a peer can access its range, and no other bytes of its region",
		Cite:  cite("ibv_bind_mw(3)", "verbs/mw/10"), Needs: needs, Defects: []string{"WindowBounds"},
		Sends:   "READs and WRITEs of the peer through a window of 64 bytes inside a region: of its last eight, then of eight that begin a byte before it, or end a byte after it",
		Expects: "the former are executed; the latter fail, with memory unchanged",
		Run: rig.PairBody(func(d *rig.Pair) {
			const first, end = 64, 128
			m := d.DUT.Memory(256, regionAccess(d.DUT, rig.RemoteAccess(d.DUT)))
			for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpRDMAWrite} {
				for _, off := range []uint64{first - 1, end - 7} {
					l := newPair(d, setup{})
					at := l.dut.bindNew(kind, bindRange(m, first, end-first, verbs.AccessRemoteRead|verbs.AccessRemoteWrite))
					at.Addr = m.Addr() + end - 8
					l.expectExecuted(op, m, at, end-8)
					at.Addr = m.Addr() + off
					l.expectRefused(fmt.Sprintf("%v 8 bytes from %d on through a window of bytes 64 to 127", op, off), l.partner.rdmaWR(op, at))
				}
			}
			d.DUT.ExpectUntouched(m)
		}),
	}
}
