package cm

import "github.com/fabrictest/fabrictest/emu/softroce/wire"

// handleLAP answers a LAP with an APR that declines the alternate path: this CM does not support
// path migration. The APR to a LAP for an unknown connection says so. A LAP before or after the
// established state is ignored.
func (a *Agent) handleLAP(in *incoming, m *wire.LAP) {
	apr := wire.APR{LocalCommID: m.RemoteCommID, RemoteCommID: m.LocalCommID, Status: wire.APUnsupported}
	c, mayAnswer := a.findConn(in, m.RemoteCommID, m.LocalCommID)
	switch {
	case c == nil && !mayAnswer:
		return
	case c == nil:
		apr.Status = wire.APInvalidCommID
	case c.state != StateEstablished:
		a.counters.WrongState++
		return
	}
	a.sendOnce(a.replyRoute(in), wire.AttrAPR, in.tid, &apr)
}
