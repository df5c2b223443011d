package engine

import (
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/verbs"
)

// Automatic path migration. MIGRATED uses the one path there is and says so
// with MigReq 1; ARMED has an alternate ready; REARM becomes ARMED when the
// peer says that it is ready as well, by MigReq 0.

func (q *QP) migReq() bool {
	return q.attr.PathMigState == verbs.MigMigrated && !q.nic.q.MigReqZero
}

// setMigState follows a consumer's wish. Asking for MIGRATED while ARMED moves
// the QP to the alternate path.
func (q *QP) setMigState(s verbs.MigState) {
	if s == verbs.MigMigrated && q.attr.PathMigState == verbs.MigArmed {
		q.migrate()
		return
	}
	q.attr.PathMigState = s
}

// migrate moves an armed QP to its alternate path.
func (q *QP) migrate() {
	q.path = q.alt
	q.attr.AH, q.attr.Port, q.attr.PKeyIndex = q.attr.AltAH, q.attr.AltPort, q.attr.AltPKeyIndex
	q.attr.Timeout = q.attr.AltTimeout
	q.attr.PathMigState = verbs.MigMigrated
	q.nic.report(Event{Type: verbs.EventPathMig, QP: q})
}

// onPath reports whether a packet came along the connection's path, and takes
// an armed QP to the alternate path when the peer asks for that.
func (q *QP) onPath(d *link.Datagram, migReq bool) bool {
	if q.nic.q.SourceUnchecked {
		return true
	}
	if d.Src.Addr() == q.path.dst.Addr() && d.Dst.Addr() == q.path.src.Addr() {
		switch {
		case q.attr.PathMigState == verbs.MigRearm && !migReq:
			q.attr.PathMigState = verbs.MigArmed
		case q.attr.PathMigState == verbs.MigArmed && migReq:
			q.migrate()
		}
		return true
	}
	if q.attr.PathMigState == verbs.MigArmed && migReq &&
		d.Src.Addr() == q.alt.dst.Addr() && d.Dst.Addr() == q.alt.src.Addr() {
		q.migrate()
		return true
	}
	return false
}
