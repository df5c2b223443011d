package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/verbs"
)

// Automatic path migration. A QP in MIGRATED sends MigReq 1. REARM becomes ARMED when a
// packet with MigReq 0 shows that the peer is also ready to migrate.

// checkMigState checks a requested migration state: REARM needs an alternate path and a QP that is
// not ARMED, MIGRATED is allowed unless REARM is pending. Applications cannot request ARMED.
func (q *QP) checkMigState(want verbs.MigState, mask verbs.QPAttrMask) error {
	have := q.attr.PathMigState
	loaded := q.alt.dst.IsValid() || mask&verbs.QPAttrAltPath != 0
	switch {
	case want == verbs.MigMigrated && have != verbs.MigRearm:
		return nil
	case want == verbs.MigRearm && have != verbs.MigArmed && loaded:
		return nil
	}
	return nic.OpError("modify_qp", q.name(), "%w: migration state %d from %d, alternate path loaded: %v",
		verbs.ErrInvalid, want, have, loaded)
}

// migrate moves the QP to its alternate path, clears the alternate, and reports PATH_MIG.
func (q *QP) migrate() {
	q.path, q.alt = q.alt, path{}
	q.attr.AH, q.attr.Port, q.attr.PKeyIndex = q.attr.AltAH, q.attr.AltPort, q.attr.AltPKeyIndex
	q.attr.Timeout = q.attr.AltTimeout
	q.attr.PathMigState = verbs.MigMigrated
	q.nic.Report(nic.Event{Type: verbs.EventPathMig, QP: q})
	q.wake()
}

// expectedPKey returns the P_Key of the path that a packet with this MigReq bit should have taken.
func (q *QP) expectedPKey(migReq bool) uint16 {
	if q.attr.PathMigState == verbs.MigArmed && migReq {
		return q.nic.cfg.PKeys[q.attr.AltPKeyIndex]
	}
	return q.pkey()
}

// acceptPath reports whether the addresses of a packet are those of the QP's path, and updates the
// migration state. For an ARMED QP, MigReq 1 means that the peer has migrated. If the packet has
// the addresses of the alternate path, the QP migrates too; if it has those of the old path,
// acceptPath reports PATH_MIG_ERR. MigReq 0 makes a QP in REARM ARMED.
func (q *QP) acceptPath(d *link.Datagram, migReq bool) bool {
	switch state := q.attr.PathMigState; {
	case state == verbs.MigArmed && migReq && q.alt.matches(d):
		q.migrate()
		return true
	case !q.path.matches(d):
		return false
	case state == verbs.MigArmed && migReq:
		if !q.alt.migErrReported { // once for each alternate path
			q.alt.migErrReported = true
			q.nic.Report(nic.Event{Type: verbs.EventPathMigErr, QP: q})
		}
		return false
	case state == verbs.MigRearm && !migReq:
		q.attr.PathMigState = verbs.MigArmed
	}
	return true
}
