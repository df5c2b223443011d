package cm

import "github.com/fabrictest/fabrictest/emu/softroce/wire"

// handleLAP declines an alternate path: the CM does not support path migration.
func (a *Agent) handleLAP(in *incoming, m *wire.LAP) {
	apr := wire.APR{LocalCommID: m.RemoteCommID, RemoteCommID: m.LocalCommID, Status: wire.APUnsupported}
	c, unknown := a.findConn(in, m.RemoteCommID, m.LocalCommID)
	switch {
	case c == nil && !unknown:
		return
	case c == nil:
		apr.Status = wire.APInvalidCommID
	case c.state != StateEstablished:
		a.counters.WrongState++
		return
	}
	a.sendOnce(a.replyRoute(in), wire.AttrAPR, in.tid, &apr)
}
