package roce

import (
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var bindCases = overRC.Cases(slices.Concat([]conformance.Case{{
	ID: "mw/bind/type-2-opens-its-range", Cite: ibta("o10-37.2.30", "mw/8", "mw/5"), Needs: verbs.CapMWType2,
	Title:   "A bound type 2 window grants its access rights on its range",
	Sends:   "binds a window to 256 bytes inside a region; a READ and a WRITE of all of them by its key",
	Expects: "SUCCESS for the bind, the bytes for the READ, an ACK for the WRITE and its bytes in place",
	Defects: []string{"MW2Refused"}, Run: onConn(Setup{}, func(c *Conn) {
		win := c.bindWindow(verbs.MWType2, 1024, 256, verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
		c.expectRead(0, win.reth(0, 256), win.m.Buf[1024:1280])
		c.expectOpExecuted(1, writeOp, win.reth(0, 256))
		c.ExpectBytes(win.m, 1024, Data(256))
		c.ExpectUnchangedOutside(win.m, 1024, 256)
	}),
}}, []conformance.Case{
	badBindCase("mw/bind/beyond-the-region-refused", "A bind beyond the start or end of the region fails", ibta("C10-75", "mw/1"), outOfRangeBinds),
	badBindCase("mw/bind/region-without-mw-bind-refused", "A bind to a region without MW_BIND fails", ibta("C10-73", "mw/2"), noMWBindBinds),
	badBindCase("mw/bind/write-window-needs-local-write", "A window with remote write or atomic cannot be bound to a region without local write", ibta("C10-74", "mw/3"), readOnlyBinds),
	badBindCase("mw/bind/other-domain-refused", "A bind fails unless QP, window and region are in the same protection domain", ibta("C10-72", "mw/4"), otherPDBinds, "BindForeignRegion"),
}, []conformance.Case{{
	ID:   "mw/bind/type-1-refused-likewise",
	Cite: ibta("C10-72..75", "mw/1", "mw/2", "mw/3", "mw/4"), Needs: verbs.CapMWType1,
	Title:   "Binds that fail for type 2 windows fail for type 1 windows, whose keys then grant no access",
	Sends:   "binds type 1 windows beyond a region, without the required rights, and across PDs; then READs with their keys",
	Expects: "an error at the bind or MW_BIND_ERR; a NAK for a remote access error for the READs",
	Defects: []string{"BindUnchecked"}, Run: OnPort(func(p *Port) {
		for _, binds := range [][]badBind{outOfRangeBinds, noMWBindBinds, readOnlyBinds, otherPDBinds} {
			eachConn(p, Setup{}, binds, func(c *Conn, b badBind) {
				mw, info := b.bind(c, verbs.MWType1)
				c.expectBindFails(mw, verbs.SendSignaled, info)
				c.secondConn(Setup{}).expectOpRefused(readOp, ib.At(info.Addr, mw.RKey(), 8))
			})
		}
	}),
}, {
	ID: "mw/bind/bound-type-2-window-refused", Cite: ibta("o10-37.2.30", "mw/8"), Needs: verbs.CapMWType2,
	Title:   "A bind of a type 2 window that is already bound completes with MW_BIND_ERR",
	Sends:   "binds a window to one range of a region, then to another",
	Expects: "SUCCESS, then MW_BIND_ERR",
	Defects: []string{"RebindBound"}, Run: onConn(Setup{}, func(c *Conn) {
		win := c.bindWindow(verbs.MWType2, 0, 256, verbs.AccessRemoteRead)
		// The post must succeed: an earlier request in the queue might have
		// invalidated the window.
		_, err := c.postBind(win.mw, verbs.SendSignaled, bindRange(win.m, 1024, 256, verbs.AccessRemoteRead))
		c.Must("a bind that can be posted", err)
		c.ExpectCompletion(bindID, verbs.WCMWBindErr)
	}),
}, {
	ID:   "mw/bind/invalidated-type-2-window-bound-again",
	Cite: ibta("o10-37.2.30", "mw/8", "rc/inv/1"), Needs: verbs.CapMWType2 | verbs.CapSendInv,
	Title:   "An invalidated type 2 window can be bound again, and its old key is invalid",
	Sends:   "binds a window, invalidates it by a SEND, binds it with another key; READs by the new and the old key",
	Expects: "SUCCESS for both binds; the bytes for the new key, a NAK for a remote access error for the old one",
	Defects: []string{"InvalidateLate"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		old := c.bindWindow(verbs.MWType2, 1024, 256, verbs.AccessRemoteRead)
		c.Send(ib.SendOnlyInv(c.PeerPSN(0), old.key, nil))
		c.ExpectRecv(1, 0)
		again := c.bind(old.mw, bindRange(old.m, 1024, 256, verbs.AccessRemoteRead))
		c.expectRead(1, again.reth(0, 8), old.m.Buf[1024:1032])
		c.expectReadRefused(2, old.reth(0, 8))
	}),
}, {
	ID: "mw/bind/empty-type-2-window-refused", Cite: ibta("o10-37.2.40", "mw/9"), Needs: verbs.CapMWType2,
	Title:   "A bind of a type 2 window to no bytes fails",
	Sends:   "binds a type 2 window to 0 bytes of a region",
	Expects: "an error at the post, or MW_BIND_ERR",
	Defects: []string{"BindDefects"}, Run: onConn(Setup{}, func(c *Conn) {
		c.expectBindFails(c.newWindow(verbs.MWType2), verbs.SendSignaled, bindRange(c.bindableMemory(), 0, 0, verbs.AccessRemoteRead))
	}),
}, {
	ID: "mw/bind/empty-bind-closes-a-type-1-window", Cite: ibta("o10-37.2.40", "mw/9"), Needs: verbs.CapMWType1,
	Title:   "A bind of a type 1 window to no bytes invalidates it",
	Sends:   "binds a type 1 window to 256 bytes and READs by its key; binds it to none; READs by the old and the new key",
	Expects: "the bytes for the first READ, a NAK for a remote access error for the others",
	Defects: []string{"BindDefects"}, Run: onConn(Setup{}, func(c *Conn) {
		old := c.bindWindow(verbs.MWType1, 1024, 256, verbs.AccessRemoteRead)
		c.expectRead(0, old.reth(0, 8), old.m.Buf[1024:1032])
		empty := c.bind(old.mw, bindRange(old.m, 1024, 0, verbs.AccessRemoteRead))
		c.expectReadRefused(1, old.reth(0, 8))
		c.secondConn(Setup{}).expectOpRefused(readOp, empty.reth(0, 8))
	}),
}, {
	ID:   "mw/bind/zero-based-type-1-window-refused",
	Cite: ibta("o10-36.2.2", "mw/10"), Needs: verbs.CapMWType1 | verbs.CapZeroBased,
	Title:   "A type 1 window cannot be zero-based",
	Sends:   "binds a type 1 window with the flag for addresses from zero on, and READs byte 0 by its key",
	Expects: "an error at the bind or MW_BIND_ERR; a NAK for a remote access error",
	Defects: []string{"BindDefects"}, Run: onConn(Setup{}, func(c *Conn) {
		mw := c.newWindow(verbs.MWType1)
		c.expectBindFails(mw, verbs.SendSignaled, bindRange(c.bindableMemory(), 1024, 256, verbs.AccessRemoteRead|verbs.AccessZeroBased))
		c.secondConn(Setup{}).expectOpRefused(readOp, ib.At(0, mw.RKey(), 8))
	}),
}, {
	ID: "mw/bind/unsignaled-failure-completes", Cite: ibta("", "mw/13", "err/1"), Needs: verbs.CapMWType2,
	Title:   "An unsignaled bind that fails completes with an error",
	Sends:   "an unsignaled bind that exceeds its region",
	Expects: "MW_BIND_ERR, unless the post is refused",
	Defects: []string{"UnsignaledBindSilent"}, Run: onConn(Setup{}, func(c *Conn) {
		c.expectBindFails(c.newWindow(verbs.MWType2), 0, bindRange(c.bindableMemory(), 1, 4096, verbs.AccessRemoteRead))
	}),
}}))

// badBindCase returns a case of binds of a type 2 window that must fail.
func badBindCase(id, title string, cite conformance.Cite, binds []badBind, extraDefects ...string) conformance.Case {
	var names []string
	for _, b := range binds {
		names = append(names, b.name)
	}
	return conformance.Case{
		ID:    id,
		Title: title,
		Cite:  cite, Needs: verbs.CapMWType2, Defects: append([]string{"BindUnchecked"}, extraDefects...),
		Sends:   "binds a type 2 window to " + strings.Join(names, "; to "),
		Expects: "an error at the post, or MW_BIND_ERR",
		Run: onEachConn(Setup{}, binds, func(c *Conn, b badBind) {
			mw, info := b.bind(c, verbs.MWType2)
			c.expectBindFails(mw, verbs.SendSignaled, info)
		}),
	}
}

// badBind is a bind that must fail.
type badBind struct {
	name string
	bind func(*Conn, verbs.MWType) (verbs.MW, verbs.BindInfo)
}

func (b badBind) String() string { return b.name }

// badBindTo returns a bind of an ordinary window that must fail because of its BindInfo.
func badBindTo(name string, info func(*Conn) verbs.BindInfo) badBind {
	return badBind{name, func(c *Conn, kind verbs.MWType) (verbs.MW, verbs.BindInfo) { return c.newWindow(kind), info(c) }}
}

var (
	outOfRangeBinds = []badBind{
		badBindTo("a range that starts one byte before the region", func(c *Conn) verbs.BindInfo {
			return bindRange(c.bindableMemory(), -1, 64, verbs.AccessRemoteRead)
		}),
		badBindTo("a range that ends one byte after the region", func(c *Conn) verbs.BindInfo {
			return bindRange(c.bindableMemory(), 1, 4096, verbs.AccessRemoteRead)
		}),
		badBindTo("a range that wraps around 2^64", func(c *Conn) verbs.BindInfo {
			info := bindRange(c.bindableMemory(), 0, 64, verbs.AccessRemoteRead)
			info.Length = -info.Addr + 64
			return info
		}),
	}
	noMWBindBinds = []badBind{
		badBindTo("a region that grants everything but MW_BIND", func(c *Conn) verbs.BindInfo {
			return bindRange(c.TargetMem, 0, 64, verbs.AccessRemoteRead)
		}),
	}
	readOnlyBinds = []badBind{
		badBindTo("a region without local write, with remote write", func(c *Conn) verbs.BindInfo {
			return bindRange(c.Memory(64, verbs.AccessRemoteRead|verbs.AccessMWBind), 0, 64, verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
		}),
		badBindTo("a region without local write, with remote atomic", func(c *Conn) verbs.BindInfo {
			return bindRange(c.Memory(64, verbs.AccessRemoteRead|verbs.AccessMWBind), 0, 64, verbs.AccessRemoteRead|verbs.AccessRemoteAtomic)
		}),
	}
	otherPDBinds = []badBind{
		badBindTo("a region of another PD", func(c *Conn) verbs.BindInfo {
			return bindRange(c.otherPDMemory(allAccess|verbs.AccessMWBind), 0, 64, verbs.AccessRemoteRead)
		}),
		{"a region of the QP's PD, with a window of another PD", func(c *Conn, kind verbs.MWType) (verbs.MW, verbs.BindInfo) {
			mw, err := c.otherPD().AllocMW(kind)
			c.Must("a memory window", err)
			return mw, bindRange(c.bindableMemory(), 0, 64, verbs.AccessRemoteRead)
		}},
		{"a region of the window's PD, which is not the QP's", func(c *Conn, kind verbs.MWType) (verbs.MW, verbs.BindInfo) {
			pd := c.otherPD()
			mw, err := pd.AllocMW(kind)
			c.Must("a memory window", err)
			return mw, bindRange(c.MemoryIn(pd, 64, allAccess|verbs.AccessMWBind), 0, 64, verbs.AccessRemoteRead)
		}},
	}
)
