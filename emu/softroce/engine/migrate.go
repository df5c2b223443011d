package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/verbs"
)

// Automatic path migration. MIGRATED uses the one path there is and says so
// with MigReq 1; ARMED has an alternate ready; REARM becomes ARMED when the
// peer says that it is ready as well, by MigReq 0.

func (q *QP) migReq() bool {
	return q.attr.PathMigState == verbs.MigMigrated
}

// checkMigState holds a consumer's wish against the state machine: it may ask
// for REARM once an alternate path is loaded, and for MIGRATED while ARMED.
// ARMED is for the two ends to agree on.
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

// setMigState follows a consumer's wish. Asking for MIGRATED while ARMED moves
// the QP to the alternate path.
func (q *QP) setMigState(s verbs.MigState) {
	if s == verbs.MigMigrated && q.attr.PathMigState == verbs.MigArmed {
		q.migrate()
		return
	}
	q.attr.PathMigState = s
}

// migrate moves an armed QP to its alternate path, which it then has no longer.
func (q *QP) migrate() {
	q.path, q.alt = q.alt, path{}
	q.attr.AH, q.attr.Port, q.attr.PKeyIndex = q.attr.AltAH, q.attr.AltPort, q.attr.AltPKeyIndex
	q.pkey = q.nic.cfg.PKeys[q.attr.PKeyIndex]
	q.attr.Timeout = q.attr.AltTimeout
	q.attr.PathMigState = verbs.MigMigrated
	q.nic.Report(nic.Event{Type: verbs.EventPathMig, QP: q})
	q.wake()
}

// joins reports whether a packet came from the far end of pa to the near one.
func (pa *path) matches(d *link.Datagram) bool {
	return d.Src.Addr() == pa.dst.Addr() && d.Dst.Addr() == pa.src.Addr()
}

// expectedPKey is the P_Key that a packet is held against: that of the path it
// should have come along.
func (q *QP) expectedPKey(migReq bool) uint16 {
	if q.attr.PathMigState == verbs.MigArmed && migReq {
		return q.nic.cfg.PKeys[q.attr.AltPKeyIndex]
	}
	return q.pkey
}

// acceptPath reports whether a packet came along the connection's path. To an armed
// QP, MigReq 1 says that the peer has moved: such a packet must come along the
// alternate path, and takes the QP there.
func (q *QP) acceptPath(d *link.Datagram, migReq bool) bool {
	switch state := q.attr.PathMigState; {
	case state == verbs.MigArmed && migReq && q.alt.matches(d):
		q.migrate()
		return true
	case !q.path.matches(d):
		return false
	case state == verbs.MigArmed && migReq:
		q.reportMigrationError()
		return false
	case state == verbs.MigRearm && !migReq:
		q.attr.PathMigState = verbs.MigArmed
	}
	return true
}

// reportMigrationError reports, once for each alternate path, that the peer moved
// to a path that is not it.
func (q *QP) reportMigrationError() {
	if !q.migErrReported {
		q.migErrReported = true
		q.nic.Report(nic.Event{Type: verbs.EventPathMigErr, QP: q})
	}
}
