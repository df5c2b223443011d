package roce

import (
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// bindID is the work request ID of binds.
const bindID = 1000

// bindableMemory registers memory that windows may be bound to.
func (c *Conn) bindableMemory() *rig.Memory { return c.Memory(4096, allAccess|verbs.AccessMWBind) }

// newWindow allocates a window.
func (c *Conn) newWindow(kind verbs.MWType) verbs.MW {
	mw, err := c.PD.AllocMW(kind)
	c.Must("a memory window", err)
	return mw
}

// bindRange returns the BindInfo for n bytes of a region from off on.
func bindRange(m *rig.Memory, off, n int, access verbs.Access) verbs.BindInfo {
	return verbs.BindInfo{MR: m.MR, Addr: m.Addr() + uint64(off), Length: uint64(n), Access: access}
}

// postBind posts a bind: by ibv_bind_mw for type 1, by a work request for type 2. It
// returns the R_Key that the window gets.
func (c *Conn) postBind(mw verbs.MW, flags verbs.SendFlags, info verbs.BindInfo) (verbs.RKey, error) {
	c.Note("bind a window of %v to %d bytes at %#x", mw.Type(), info.Length, info.Addr)
	if mw.Type() == verbs.MWType1 {
		return c.QP.BindMW(mw, bindID, flags, info)
	}
	key := verbs.NextRKey(mw.RKey())
	_, err := c.QP.PostSend([]verbs.SendWR{{
		WRID: bindID, Opcode: verbs.OpBindMW, Flags: flags, Bind: verbs.Bind{MW: mw, RKey: key, Info: info},
	}})
	return key, err
}

// bind binds a window and returns its key.
func (c *Conn) bind(mw verbs.MW, info verbs.BindInfo) verbs.RKey {
	key, err := c.postBind(mw, verbs.SendSignaled, info)
	c.Must("a window that can be bound", err)
	c.ExpectCompletion(bindID, verbs.WCSuccess)
	return key
}

// boundWindow is a window that is bound to a range of memory.
type boundWindow struct {
	m    *rig.Memory
	info verbs.BindInfo
	key  verbs.RKey
}

// bindWindow binds a new window to n bytes of new memory from off on.
func (c *Conn) bindWindow(kind verbs.MWType, off, n int, access verbs.Access) boundWindow {
	m := c.bindableMemory()
	info := bindRange(m, off, n, access)
	return boundWindow{m, info, c.bind(c.newWindow(kind), info)}
}

// reth returns the RETH for n bytes of the window's range from off on.
func (w boundWindow) reth(off, n int) ib.RETH { return windowRETH(w.info, w.key, off, n) }

// expectBindFails fails the case if a bind succeeds. The device may reject the post, or
// complete the request with an error.
func (c *Conn) expectBindFails(mw verbs.MW, flags verbs.SendFlags, info verbs.BindInfo) {
	if _, err := c.postBind(mw, flags, info); err == nil {
		c.ExpectCompletion(bindID, verbs.WCMWBindErr)
	}
}

// windowRETH returns the RETH for n bytes of a window's range from off on.
func windowRETH(info verbs.BindInfo, key verbs.RKey, off, n int) ib.RETH {
	return ib.At(info.Addr+uint64(off), uint32(key), n)
}

// expectRead sends a READ with the peer's n-th PSN, and fails the case unless the device
// returns these bytes.
func (c *Conn) expectRead(n int, at ib.RETH, want []byte) {
	c.exchange(ib.ReadRequest(c.PeerPSN(n), at), ib.ReadResponseOnly(c.PeerPSN(n), ib.AnyMSN, want))
}

// expectReadRefused sends a READ with the peer's n-th PSN, and fails the case unless the
// device refuses it with a remote access NAK.
func (c *Conn) expectReadRefused(n int, at ib.RETH) {
	c.Send(ib.ReadRequest(c.PeerPSN(n), at))
	c.expectNak(c.PeerPSN(n), ib.NakRemoteAccess)
}
