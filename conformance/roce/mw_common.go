package roce

import (
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// bindID is the number of requests that bind windows.
const bindID = 1000

// bindableMemory is memory that windows may be bound to.
func (c *conn) bindableMemory() *rig.Memory { return c.Memory(4096, allAccess|verbs.AccessMWBind) }

// newWindow is a window that is not bound.
func (c *conn) newWindow(kind verbs.MWType) verbs.MW {
	mw, err := c.PD.AllocMW(kind)
	c.Must("a memory window", err)
	return mw
}

// bindRange is n bytes of memory from off on, as something to bind.
func bindRange(m *rig.Memory, off, n int, access verbs.Access) verbs.BindInfo {
	return verbs.BindInfo{MR: m.MR, Addr: m.Addr() + uint64(off), Length: uint64(n), Access: access}
}

// postBind asks for a window to be bound, in the way of its kind. It returns the key
// that it will have.
func (c *conn) postBind(mw verbs.MW, flags verbs.SendFlags, info verbs.BindInfo) (verbs.RKey, error) {
	c.Note("bind a window of %v to %d bytes at %#x", mw.Type(), info.Length, info.Addr)
	if mw.Type() == verbs.MWType1 {
		return c.qp.BindMW(mw, bindID, flags, info)
	}
	key := verbs.NextRKey(mw.RKey())
	_, err := c.qp.PostSend([]verbs.SendWR{{
		WRID: bindID, Opcode: verbs.OpBindMW, Flags: flags, Bind: verbs.Bind{MW: mw, RKey: key, Info: info},
	}})
	return key, err
}

// bind binds a window and returns its key.
func (c *conn) bind(mw verbs.MW, info verbs.BindInfo) verbs.RKey {
	key, err := c.postBind(mw, verbs.SendSignaled, info)
	c.Must("a window that can be bound", err)
	c.ExpectCompletion(bindID, verbs.WCSuccess)
	return key
}

// expectBindFails ends the case if a window can be bound so. A device may see what is wrong
// at the post, or when the request's turn comes.
func (c *conn) expectBindFails(mw verbs.MW, flags verbs.SendFlags, info verbs.BindInfo) {
	if _, err := c.postBind(mw, flags, info); err == nil {
		c.ExpectCompletion(bindID, verbs.WCMWBindErr)
	}
}

// windowRETH is n bytes from off on of what is bound there, by the window's key.
func windowRETH(info verbs.BindInfo, key verbs.RKey, off, n int) ib.RETH {
	return ib.At(info.Addr+uint64(off), uint32(key), n)
}

// expectRead ends the case unless the n-th request, a READ of eight bytes through a
// window, is answered with those of the memory.
func (c *conn) expectRead(n int, at ib.RETH, want []byte) {
	c.send(ib.ReadRequest(c.peerPSN(n), at))
	c.expect(ib.ReadResponseOnly(c.peerPSN(n), ib.AnyMSN, want))
}

// expectReadRefused ends the case unless the n-th request, a READ through a window, is
// refused.
func (c *conn) expectReadRefused(n int, at ib.RETH) {
	c.send(ib.ReadRequest(c.peerPSN(n), at))
	c.expectNak(c.peerPSN(n), ib.NakRemoteAccess)
}
