package cm

import "github.com/fabrictest/fabrictest/emu/softroce/mad"

// handleLAP declines an alternate path: the CM does not support path migration.
func (a *Agent) handleLAP(in *incoming, m *mad.LAP) {
	apr := mad.APR{LocalCommID: m.RemoteCommID, RemoteCommID: m.LocalCommID, Status: mad.APUnsupported}
	c, unknown := a.findConn(in, m.RemoteCommID, m.LocalCommID)
	switch {
	case c == nil && !unknown:
		return
	case c == nil:
		apr.Status = mad.APInvalidCommID
	case c.state != StateEstablished:
		a.counters.WrongState++
		return
	}
	a.sendOnce(a.replyRoute(in), mad.AttrAPR, in.tid, &apr)
}
