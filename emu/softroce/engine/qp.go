package engine

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// CreateQP creates a QP in RESET, and counts a use of each object that it refers to, so that these
// cannot be destroyed before it.
func (n *NIC) CreateQP(c QPConfig) (*QP, error) {
	if err := n.checkQP(&c); err != nil {
		return nil, err
	}
	num, err := n.qps.Next()
	if err != nil {
		return nil, err
	}
	q := &QP{nic: n, num: num, cfg: c}
	q.timer.Owner, q.timer.TieBreak = q, num
	if hasRequester(c.Type) {
		q.sq = newSendQueue(&c.Caps)
		c.SendCQ.Use(1)
	}
	if hasResponder(c.Type) && c.SRQ == nil && c.Type != verbs.QPTypeXRCRecv {
		q.rq = nic.NewRecvQueue(c.Caps.MaxRecvWR, c.Caps.MaxRecvSGE)
	}
	if c.RecvCQ != nil {
		c.RecvCQ.Use(1)
	}
	if c.SRQ != nil {
		c.SRQ.Use(1)
	}
	if c.XRCD != nil {
		c.XRCD.Use(1)
	}
	if c.Type != verbs.QPTypeXRCRecv {
		n.UsePD(c.PD, 1)
	}
	q.reset()
	n.qps.Add(q)
	return q, nil
}

// checkQP returns an error if a QP with this configuration cannot be created.
func (n *NIC) checkQP(c *QPConfig) error {
	invalid := func(format string, args ...any) error {
		return nic.OpError("create_qp", "", "%w: "+format, append([]any{verbs.ErrInvalid}, args...)...)
	}
	switch c.Type {
	case verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD:
		if c.SendCQ == nil || c.RecvCQ == nil {
			return invalid("%v needs a send and a receive CQ", c.Type)
		}
	case verbs.QPTypeXRCSend:
		if c.SendCQ == nil || c.SRQ != nil {
			return invalid("%v needs a send CQ and has no SRQ", c.Type)
		}
	case verbs.QPTypeXRCRecv:
		if c.XRCD == nil || c.SRQ != nil || c.SendCQ != nil || c.RecvCQ != nil {
			return invalid("%v needs an XRC domain and has no queues of its own", c.Type)
		}
	default:
		return nic.OpError("create_qp", "", "%w: type %v", verbs.ErrNotSupported, c.Type)
	}
	if c.Type == verbs.QPTypeXRCRecv && !n.HasXRCD(c.XRCD) {
		return invalid("no such XRC domain")
	}
	if c.Type != verbs.QPTypeXRCRecv {
		if err := n.CheckPD("create_qp", c.PD); err != nil {
			return err
		}
	}
	if c.SRQ != nil && c.SRQ.Type != verbs.SRQBasic {
		return invalid("an XRC SRQ is named by senders, not attached")
	}
	return n.CheckCaps(&c.Caps)
}

// DestroyQP closes a handle of a QP, and with its last handle destroys the QP: its work requests do
// not complete and it sends no more packets.
func (n *NIC) DestroyQP(q *QP) error {
	if n.qps.At(q.num) != q {
		return nic.OpError("destroy_qp", q.name(), "%w: destroyed already", verbs.ErrInvalid)
	}
	if q.opens > 0 {
		q.opens-- // other handles are still open
		return nil
	}
	if q.groups > 0 {
		return nic.OpError("destroy_qp", q.name(), "%w: attached to %d multicast groups", verbs.ErrBusy, q.groups)
	}
	if q.cfg.SendCQ != nil {
		q.cfg.SendCQ.Use(-1)
	}
	if q.cfg.RecvCQ != nil {
		q.cfg.RecvCQ.Use(-1)
	}
	if q.cfg.SRQ != nil {
		q.cfg.SRQ.Use(-1)
	}
	if q.cfg.XRCD != nil {
		q.cfg.XRCD.Use(-1)
	}
	if q.cfg.Type != verbs.QPTypeXRCRecv {
		n.UsePD(q.cfg.PD, -1)
	}
	n.Mem.UnbindQP(q.num)
	n.DropEvents(func(e *nic.Event) bool { return e.QP == q })
	n.qps.Remove(q.num)
	n.timers.Stop(&q.timer)
	q.reset() // the QP may still be in NIC.active
	return nil
}

// OpenQP opens a further handle to an XRC target QP.
func (n *NIC) OpenQP(x *nic.XRCD, qpn uint32) (*QP, error) {
	q := n.qps.At(qpn)
	if q == nil || q.cfg.Type != verbs.QPTypeXRCRecv || q.cfg.XRCD != x {
		return nil, nic.OpError("open_qp", fmt.Sprintf("qp %#x", qpn), "%w in this XRC domain", verbs.ErrNotFound)
	}
	q.opens++
	return q, nil
}

// reset restores the state after CreateQP.
func (q *QP) reset() {
	q.state = verbs.QPStateReset
	q.attr = verbs.QPAttr{}
	q.path, q.alt = path{}, path{}
	q.sq.head, q.sq.tail = 0, 0
	q.rq.Clear()
	q.req = requester{retryState: retryState{timer: mono.Never, rnrUntil: mono.Never}}
	q.releaseAck()
	q.resp.reset()
	q.congestion = congestion{}
	q.mtu = int32(q.nic.MTU().Bytes())
}

// Num returns the QP number.
func (q *QP) Num() uint32 { return q.num }

// Type returns the QP type.
func (q *QP) Type() verbs.QPType { return q.cfg.Type }

// State returns the QP state.
func (q *QP) State() verbs.QPState { return q.state }

// Ends returns the addresses of the QP's path; they are invalid if it has none.
func (q *QP) Ends() (own, peer netip.Addr) { return q.path.src.Addr(), q.path.dst.Addr() }

// Expected returns the PSN of the next request to execute.
func (q *QP) Expected() wire.PSN { return q.resp.expected }

// Modify changes the attributes that mask selects. On error it changes none.
func (q *QP) Modify(now mono.Time, a verbs.QPAttr, mask verbs.QPAttrMask) error {
	from := q.state
	if q.nic.qps.At(q.num) != q {
		return nic.OpError("modify_qp", q.name(), "%w: destroyed", verbs.ErrInvalid)
	}
	to, err := nic.Transition(q.cfg.Type, from, &a, mask)
	if err != nil {
		return &verbs.OpError{Op: "modify_qp", Obj: q.name(), Err: err}
	}
	newPath, newAlt, err := q.checkModify(&a, from, to, mask)
	if err != nil {
		return err
	}
	// Nothing can fail from here on.
	q.path, q.alt = newPath, newAlt
	if from == verbs.QPStateRTS && to == verbs.QPStateSQD {
		q.attr.EnSQDAsyncNotify = false // unless mask selects it: storeAttrs sets it
	}
	q.storeAttrs(&a, mask)
	q.enterState(from, to)
	return nil
}

// checkModify validates the attributes and the migration state, and resolves the primary and the
// alternate path. A QP in SQD must have drained its send queue.
func (q *QP) checkModify(a *verbs.QPAttr, from, to verbs.QPState, mask verbs.QPAttrMask) (primary, alt path, err error) {
	if err := q.checkValues(a, mask); err != nil {
		return path{}, path{}, err
	}
	if mask&verbs.QPAttrPathMigState != 0 {
		if err := q.checkMigState(a.PathMigState, mask); err != nil {
			return path{}, path{}, err
		}
	}
	if from == verbs.QPStateSQD && (to == verbs.QPStateRTS || to == verbs.QPStateSQD) && q.draining() {
		return path{}, path{}, nic.OpError("modify_qp", q.name(), "%w: the send queue is still draining", verbs.ErrInvalid)
	}
	primary, alt = q.path, q.alt
	dest := q.attr.DestQPN
	if mask&verbs.QPAttrDestQPN != 0 {
		dest = a.DestQPN
	}
	if mask&verbs.QPAttrAV != 0 {
		primary, err = q.nic.cfg.resolve(&a.AH, q.num, uint32(dest))
	}
	if mask&verbs.QPAttrAltPath != 0 && err == nil {
		alt, err = q.nic.cfg.resolve(&a.AltAH, q.num, uint32(dest))
	}
	if err != nil {
		err = &verbs.OpError{Op: "modify_qp", Obj: q.name(), Err: err}
	}
	return primary, alt, err
}

// checkValues checks attribute values against their ranges and the limits of the device. The policy
// PathMTUAbovePort permits a path MTU that the port cannot carry.
func (q *QP) checkValues(a *verbs.QPAttr, mask verbs.QPAttrMask) error {
	invalid := func(format string, args ...any) error {
		return nic.OpError("modify_qp", q.name(), "%w: "+format, append([]any{verbs.ErrInvalid}, args...)...)
	}
	has := func(m verbs.QPAttrMask) bool { return mask&m != 0 }
	limit, pkeys := q.nic.cfg.Limits.RdAtomic, len(q.nic.cfg.PKeys)
	switch {
	case has(verbs.QPAttrPort) && a.Port != 1:
		return invalid("port %d, there is only port 1", a.Port)
	case has(verbs.QPAttrAV) && a.AH.Port != 1:
		return invalid("address vector for port %d, there is only port 1", a.AH.Port)
	case has(verbs.QPAttrAltPath) && (a.AltAH.Port != 1 || a.AltPort != 1):
		return invalid("alternate path for ports %d and %d, there is only port 1", a.AltPort, a.AltAH.Port)
	case has(verbs.QPAttrPKeyIndex) && int(a.PKeyIndex) >= pkeys:
		return invalid("P_Key index %d of %d", a.PKeyIndex, pkeys)
	case has(verbs.QPAttrAltPath) && int(a.AltPKeyIndex) >= pkeys:
		return invalid("alternate P_Key index %d of %d", a.AltPKeyIndex, pkeys)
	case has(verbs.QPAttrPathMTU) && a.PathMTU.Bytes() == 0:
		return invalid("path MTU code %d", uint32(a.PathMTU))
	case has(verbs.QPAttrPathMTU) && a.PathMTU > q.nic.MTU() && !q.nic.policy.PathMTUAbovePort:
		return invalid("path MTU %v, the port carries %v", a.PathMTU, q.nic.MTU())
	case has(verbs.QPAttrMaxQPRdAtomic) && a.MaxRdAtomic > limit:
		return invalid("max_rd_atomic %d, limit %d", a.MaxRdAtomic, limit)
	case has(verbs.QPAttrMaxDestRdAtomic) && a.MaxDestRdAtomic > limit:
		return invalid("max_dest_rd_atomic %d, limit %d", a.MaxDestRdAtomic, limit)
	case has(verbs.QPAttrTimeout) && a.Timeout > 31, has(verbs.QPAttrMinRNRTimer) && a.MinRNRTimer > 31,
		has(verbs.QPAttrAltPath) && a.AltTimeout > 31:
		return invalid("timer codes are 0..31")
	case has(verbs.QPAttrRetryCnt) && a.RetryCnt > 7, has(verbs.QPAttrRNRRetry) && a.RNRRetry > 7:
		return invalid("retry counts are 0..7")
	case has(verbs.QPAttrRQPSN) && a.RQPSN > uint32(wire.PSNMask), has(verbs.QPAttrSQPSN) && a.SQPSN > uint32(wire.PSNMask):
		return invalid("PSNs have 24 bits")
	case has(verbs.QPAttrDestQPN) && a.DestQPN >= verbs.MulticastQPN:
		return invalid("destination QP %#x: numbers have 24 bits, and the last is that of multicast", a.DestQPN)
	}
	return nil
}

// storeAttrs stores the attributes that mask selects. MIGRATED makes an ARMED QP migrate.
func (q *QP) storeAttrs(a *verbs.QPAttr, mask verbs.QPAttrMask) {
	has := func(m verbs.QPAttrMask) bool { return mask&m != 0 }
	if has(verbs.QPAttrEnSQDAsyncNotify) {
		q.attr.EnSQDAsyncNotify = a.EnSQDAsyncNotify
	}
	if has(verbs.QPAttrAccessFlags) {
		q.attr.Access = a.Access
	}
	if has(verbs.QPAttrPKeyIndex) {
		q.attr.PKeyIndex = a.PKeyIndex
	}
	if has(verbs.QPAttrPort) {
		q.attr.Port = a.Port
	}
	if has(verbs.QPAttrQKey) {
		q.attr.QKey = a.QKey
	}
	if has(verbs.QPAttrAV) {
		q.attr.AH = a.AH
	}
	if has(verbs.QPAttrPathMTU) {
		q.attr.PathMTU = a.PathMTU
		q.mtu = int32(a.PathMTU.Bytes())
	}
	if has(verbs.QPAttrTimeout) {
		q.attr.Timeout = a.Timeout
	}
	if has(verbs.QPAttrRetryCnt) {
		q.attr.RetryCnt = a.RetryCnt
	}
	if has(verbs.QPAttrRNRRetry) {
		q.attr.RNRRetry = a.RNRRetry
	}
	if has(verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry) {
		q.loadRetries()
	}
	if has(verbs.QPAttrMaxQPRdAtomic) {
		q.attr.MaxRdAtomic = a.MaxRdAtomic
	}
	if has(verbs.QPAttrMaxDestRdAtomic) {
		q.attr.MaxDestRdAtomic = a.MaxDestRdAtomic
		q.resp.resize(int(a.MaxDestRdAtomic))
	}
	if has(verbs.QPAttrAltPath) {
		q.attr.AltAH, q.attr.AltPKeyIndex = a.AltAH, a.AltPKeyIndex
		q.attr.AltPort, q.attr.AltTimeout = a.AltPort, a.AltTimeout
	}
	if has(verbs.QPAttrMinRNRTimer) {
		q.attr.MinRNRTimer = a.MinRNRTimer
	}
	if has(verbs.QPAttrDestQPN) {
		q.attr.DestQPN = a.DestQPN
	}
	if has(verbs.QPAttrSQPSN) {
		q.attr.SQPSN = a.SQPSN
		psn := wire.PSN(a.SQPSN)
		q.req.una, q.req.next, q.req.max, q.req.ackReqPSN = psn, psn, psn, psn.Add(-1)
	}
	if has(verbs.QPAttrRQPSN) {
		q.attr.RQPSN = a.RQPSN
		q.resp.expected = wire.PSN(a.RQPSN)
		q.resp.ackPSN = q.resp.expected.Add(-1)
	}
	if has(verbs.QPAttrPathMigState) {
		if a.PathMigState == verbs.MigMigrated && q.attr.PathMigState == verbs.MigArmed {
			q.migrate()
		} else {
			q.attr.PathMigState = a.PathMigState
		}
	}
}

// enterState performs the actions of a state transition, and wakes the QP, which may have packets
// to send now. With the policy ResumeOnPost, a QP that returns from SQD to RTS sends only after the
// next post.
func (q *QP) enterState(from, to verbs.QPState) {
	switch to {
	case verbs.QPStateReset:
		q.reset()
		return
	case verbs.QPStateErr:
		if from != verbs.QPStateErr { // a QP that is in ERR already may still have to send a NAK
			q.resp.dropPending()
		}
		q.fail()
		return
	}
	q.state = to
	switch {
	case to == verbs.QPStateSQD && from != verbs.QPStateSQD:
		q.req.drainNotify = q.attr.EnSQDAsyncNotify
		_ = q.solicitAck()
		q.checkDrained()
	case to == verbs.QPStateRTS && from == verbs.QPStateSQD && q.nic.policy.ResumeOnPost:
		return // PostSend wakes the QP
	}
	q.wake()
}

// Query returns the current attributes. SQPSN and RQPSN are the next PSN to send and to receive.
func (q *QP) Query() verbs.QPAttr {
	a := q.attr
	a.State, a.CurState = q.state, q.state
	a.Caps = q.cfg.Caps
	a.SQPSN, a.RQPSN = uint32(q.req.max), uint32(q.resp.expected)
	a.SQDraining = q.draining()
	return a
}
