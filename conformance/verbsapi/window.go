package verbsapi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var windowCases = []conformance.Case{
	{
		ID:    "verbs/mw/type-1-bind",
		Title: "Binding a type 1 window gives it a new key every time, which the verb returns and the window tells",
		Cite:  manual("ibv_bind_mw(3)", "verbs/mw/1"), Level: conformance.Must, Needs: verbs.CapMWType1,
		Sends:   "three binds of one window, one behind the other",
		Expects: "a completion of BIND_MW and a key unlike all before for each; and the window tells the last",
		Mutants: []string{"BindKeepsKey", "MWKeyStale"},
		Run: onLink(setup{}, func(l *link) {
			mw := l.near.window(verbs.MWType1)
			keys := map[verbs.RKey]bool{mw.RKey(): true}
			for i := range 3 {
				key := l.near.bind(mw, part(l.near.mem, 64*i, 64, verbs.AccessRemoteRead))
				l.near.Check(!keys[key], fmt.Sprintf("a new key for bind %d", i+1), "%#x again", key)
				l.near.Check(mw.RKey() == key, fmt.Sprintf("a window with the key %#x", key), "%#x", mw.RKey())
				keys[key] = true
			}
		}),
	},
	{
		ID:    "verbs/mw/type-2-bind",
		Title: "Binding a type 2 window gives it the key that the request names",
		Cite:  manual("ibv_post_send(3)", "verbs/mw/2"), Level: conformance.Must, Needs: verbs.CapMWType2,
		Sends:   "a bind with the next key of the window",
		Expects: "a completion of BIND_MW, and a window that tells this key",
		Mutants: []string{"MWKeyStale"},
		Run: onLink(setup{}, func(l *link) {
			mw := l.near.window(verbs.MWType2)
			key := l.near.bind(mw, part(l.near.mem, 0, 64, verbs.AccessRemoteRead))
			l.near.Check(mw.RKey() == key, fmt.Sprintf("a window with the key %#x", key), "%#x", mw.RKey())
		}),
	},
	{
		ID:    "verbs/mw/verb-is-for-type-1",
		Title: "The verb that binds windows is for those of type 1 only",
		Cite:  manual("ibv_bind_mw(3)", "verbs/mw/3"), Level: conformance.Must, Needs: verbs.CapMWType2,
		Sends:   "a type 2 window to the verb",
		Expects: "that it is refused, and the window as it was",
		Mutants: []string{"MWTypesMixed"},
		Run: onLink(setup{}, func(l *link) {
			mw := l.near.window(verbs.MWType2)
			was := mw.RKey()
			_, err := l.near.qp.BindMW(mw, bindID, verbs.SendSignaled, part(l.near.mem, 0, 64, verbs.AccessRemoteRead))
			l.near.Refuses("ibv_bind_mw with a type 2 window", err, verbs.ErrInvalid)
			l.near.Check(mw.RKey() == was, fmt.Sprintf("a window with the key %#x still", was), "%#x", mw.RKey())
		}),
	},
	{
		ID:    "verbs/mw/work-request-is-for-type-2",
		Title: "The work request that binds windows is for those of type 2 only",
		// The page says of the request's window that it is of type 2, and not what
		// becomes of another: a device may find out when it is posted, or later.
		Cite: manual("ibv_post_send(3)", "verbs/mw/3"), Level: conformance.Should, Needs: verbs.CapMWType1,
		Sends:   "a type 1 window in a work request",
		Expects: "that it is refused or completes in error",
		Mutants: []string{"MWTypesMixed"},
		Run: onLink(setup{}, func(l *link) {
			mw := l.near.window(verbs.MWType1)
			l.near.fails("a type 1 window in a work request", bindWR(mw, verbs.NextRKey(mw.RKey()), part(l.near.mem, 0, 64, verbs.AccessRemoteRead)))
		}),
	},
	{
		ID:    "verbs/mw/bind-needs-the-right",
		Title: "A window cannot be bound to a region without the right to bind, nor write where the region cannot be written",
		Cite:  manual("ibv_bind_mw(3)", "verbs/mw/4"), Level: conformance.Must, Needs: verbs.CapMWType2,
		Sends:   "binds to a region without MW_BIND; and, for remote write, to one without local write",
		Expects: "that both are refused or complete with MW_BIND_ERR",
		Mutants: []string{"BindUnchecked"},
		Run: rig.Straight(func(r *rig.Rig) {
			d := r2(r)
			for _, b := range []struct {
				what       string
				has, wants verbs.Access
			}{
				{"a region without MW_BIND", verbs.AccessLocalWrite | verbs.AccessRemoteRead, verbs.AccessRemoteRead},
				{"writing a region without local write", verbs.AccessRemoteRead | verbs.AccessMWBind, verbs.AccessRemoteWrite},
			} {
				l := d.link(setup{})
				l.near.bindFails(b.what, whole(r.Memory(64, b.has), b.wants))
			}
		}),
	},
	{
		ID:    "verbs/mw/bind-stays-in-its-region",
		Title: "A window cannot be bound beyond its region",
		Cite:  manual("ibv_bind_mw(3)", "verbs/mw/5"), Level: conformance.Must, Needs: verbs.CapMWType2,
		Sends:   "binds that begin a byte before the region, and that end a byte behind it",
		Expects: "that both are refused or complete with MW_BIND_ERR",
		Mutants: []string{"BindUnchecked"},
		Run: rig.Straight(func(r *rig.Rig) {
			d := r2(r)
			for _, off := range []int{-1, 1} {
				l := d.link(setup{})
				m := r.Memory(64, regionRights(r, remoteRights(r)))
				l.near.bindFails(fmt.Sprintf("64 bytes from %d on of 64", off), part(m, off, 64, verbs.AccessRemoteRead))
			}
		}),
	},
	{
		ID:    "verbs/mw/bind-stays-in-its-domain",
		Title: "Queue pair, window and region of a bind are of one domain",
		Cite:  manual("ibv_bind_mw(3)", "verbs/mw/6"), Level: conformance.Must, Needs: verbs.CapMWType2,
		Sends:   "a bind to a region of another domain",
		Expects: "that it is refused or completes with MW_BIND_ERR",
		Mutants: []string{"BindUnchecked"},
		Run: onLink(setup{}, func(l *link) {
			m := l.near.MemoryIn(otherPD(l.near.Rig), 64, regionRights(l.near.Rig, remoteRights(l.near.Rig)))
			l.near.bindFails("a region of another domain", whole(m, verbs.AccessRemoteRead))
		}),
	},
	{
		ID:    "verbs/mw/free-while-bound",
		Title: "A bound window can be freed, and opens nothing any more",
		Cite:  manual("ibv_dealloc_mw(3)", "verbs/mw/7"), Level: conformance.Must, Needs: verbs.CapMWType2 | verbs.CapRC,
		Sends:   "a READ of the peer through a window; another when the window has been freed",
		Expects: "the bytes for the first, and that the second fails",
		Mutants: []string{"BoundMWBusy"},
		Run: onRC(func(l *link) {
			mw := l.near.window(verbs.MWType2)
			at := l.near.opens(mw, 256, 64)
			l.far.reads(at, l.near.mem.Buf[256:320])
			l.near.Do("a bound window that can be freed", mw.Close())
			l.refuses("read through a window that has been freed", l.far.readWR(9, toOff, 16, at))
		}),
	},
	{
		ID:    "verbs/mw/local-invalidate",
		Title: "A local invalidate completes as such and takes its right from the peer; the window can be bound again",
		Cite:  manual("ibv_post_send(3)", "verbs/mw/8"), Level: conformance.Must, Needs: verbs.CapMWType2 | verbs.CapLocalInv | verbs.CapRC,
		Sends:   "a bind, a local invalidate, a bind with the next key; a READ of the peer by the new key, and one by the old",
		Expects: "a completion of LOCAL_INV; the bytes for the new key, and that the old one fails",
		Mutants: []string{"LocalInvNoop"},
		Run: onRC(func(l *link) {
			mw := l.near.window(verbs.MWType2)
			old := l.near.opens(mw, 256, 64)
			l.near.Post(l.near.qp, verbs.SendWR{WRID: 5, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: old.RKey})
			wc := l.near.Completes(5, verbs.WCSuccess)
			l.near.Check(wc.Opcode == verbs.WCOpLocalInv, verbs.WCOpLocalInv.String(), "%v", wc.Opcode)
			fresh := l.near.opens(mw, 512, 64)
			l.far.reads(fresh, l.near.mem.Buf[512:576])
			l.refuses("read by a key that was invalidated", l.far.readWR(9, toOff, 16, old))
		}),
	},
	{
		ID:    "verbs/mw/invalidated-by-the-peer",
		Title: "The completion of a message that invalidates names the key",
		Cite:  manual("ibv_poll_cq(3)", "verbs/mw/9"), Level: conformance.Must, Needs: verbs.CapMWType2 | verbs.CapSendInv | verbs.CapRC,
		Sends:   "a SEND with invalidate of the peer, with the key of a bound window; then a READ by this key",
		Expects: "a receive with the flag and the key; and that the READ fails",
		Mutants: []string{"WCFlagsLost"},
		Run: onRC(func(l *link) {
			at := l.near.opens(l.near.window(verbs.MWType2), 256, 64)
			l.near.recv(1, toOff, 64)
			wr := l.far.sendWR(2, 0, 16)
			wr.Opcode, wr.InvalidateRKey = verbs.OpSendInv, at.RKey
			l.far.Post(l.far.qp, wr)
			l.far.Completes(2, verbs.WCSuccess)
			wc := l.near.Received(1, 16)
			l.near.Check(wc.Flags&verbs.WCWithInv != 0 && wc.InvalidatedRKey == at.RKey,
				fmt.Sprintf("a completion that names the key %#x", at.RKey), "flags %#x, key %#x", uint32(wc.Flags), wc.InvalidatedRKey)
			l.refuses("read by a key that it has invalidated", l.far.readWR(9, toOff, 16, at))
		}),
	},
}

// bindID is that of requests that bind windows.
const bindID = 1000

// window makes a window that is not bound.
func (e *end) window(kind verbs.MWType) verbs.MW {
	mw, err := e.PD.AllocMW(kind)
	e.Do(fmt.Sprintf("a window of %v", kind), err)
	e.Check(mw.Type() == kind, fmt.Sprintf("a window of %v", kind), "%v", mw.Type())
	return mw
}

// whole and part are what a bind opens of a region.
func whole(m *rig.Memory, access verbs.Access) verbs.BindInfo { return part(m, 0, m.Len(), access) }

func part(m *rig.Memory, off, n int, access verbs.Access) verbs.BindInfo {
	return verbs.BindInfo{MR: m.MR, Addr: m.Addr() + uint64(off), Length: uint64(n), Access: access}
}

func bindWR(mw verbs.MW, key verbs.RKey, info verbs.BindInfo) verbs.SendWR {
	return verbs.SendWR{WRID: bindID, Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, Bind: verbs.Bind{MW: mw, RKey: key, Info: info}}
}

// bind binds a window in the way of its type, and returns its key.
func (e *end) bind(mw verbs.MW, info verbs.BindInfo) verbs.RKey {
	key := verbs.NextRKey(mw.RKey())
	if mw.Type() == verbs.MWType1 {
		var err error
		key, err = e.qp.BindMW(mw, bindID, verbs.SendSignaled, info)
		e.Do("a window that can be bound", err)
	} else {
		e.Post(e.qp, bindWR(mw, key, info))
	}
	wc := e.Completes(bindID, verbs.WCSuccess)
	e.Check(wc.Opcode == verbs.WCOpBindMW, verbs.WCOpBindMW.String(), "%v", wc.Opcode)
	return key
}

// bindFails ends the case if a new type 2 window can be bound so.
func (e *end) bindFails(what string, info verbs.BindInfo) {
	mw := e.window(verbs.MWType2)
	e.failsWith("a bind to "+what, bindWR(mw, verbs.NextRKey(mw.RKey()), info), verbs.WCMWBindErr)
}

// opens binds a window to a part of the end's memory that the peer may read, and names
// it to the peer.
func (e *end) opens(mw verbs.MW, off, n int) verbs.Remote {
	info := part(e.mem, off, n, verbs.AccessRemoteRead)
	return verbs.Remote{Addr: info.Addr, RKey: e.bind(mw, info)}
}
