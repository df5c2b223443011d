package verbsapi

import (
	"errors"
	"fmt"
	"math"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var addressCases = conformance.Group{Needs: verbs.CapUD, Labels: []string{"service:ud"}}.Cases([]conformance.Case{{
	ID: "verbs/ah/as-it-was-made", Cite: cite("ibv_create_ah(3)", "verbs/ah/1"),
	Title:   "An address handle keeps the attributes it was created with",
	Expects: "destination, source index, hop limit, traffic class, service level and port as given",
	Defects: []string{"AHAttrForgotten"}, Run: rig.Body(func(r *rig.Rig) {
		want := r.PathTo(r)
		want.SL, want.GRH.TrafficClass, want.GRH.HopLimit = 3, 0x48, 17
		ah := rig.Result(r.PD.CreateAH(want))(r, "an address handle")
		r.Check(ah.Attr() == want, fmt.Sprintf("%+v", want), "%+v", ah.Attr())
	}),
}, {
	ID: "verbs/ah/impossible-addresses-refused", Cite: cite("ibv_create_ah(3)", "verbs/ah/2"),
	Title:   "An address handle with an invalid port or source index is refused",
	Expects: "a refusal of port 0, of a port after the last, and of a source index after the table, or of an empty entry",
	Defects: []string{"AHUnchecked"}, Run: rig.Body(func(r *rig.Rig) {
		nowhere := unusedGIDIndex(r)
		for _, bad := range []struct {
			what   string
			wrong  func(*verbs.AHAttr)
			reason error
		}{
			{"port 0", func(a *verbs.AHAttr) { a.Port = 0 }, verbs.ErrInvalid},
			{"a port after the last", func(a *verbs.AHAttr) { a.Port = r.QueryDevice().Ports + 1 }, verbs.ErrInvalid},
			// The error for an empty entry is not specified.
			{"a source index without an address", func(a *verbs.AHAttr) { a.GRH.SGIDIndex = nowhere }, nil},
		} {
			attr := r.PathTo(r)
			bad.wrong(&attr)
			r.MustFail("an address handle with "+bad.what, errorOf(r.PD.CreateAH(attr)), bad.reason)
		}
	}),
}, {
	ID: "verbs/ah/answer-to-a-datagram", Cite: cite("ibv_init_ah_from_wc(3)", "verbs/ah/3"),
	Title:   "A datagram can be answered with the address in its completion and GRH area",
	Sends:   "a datagram of the partner, and a reply to its source",
	Expects: "the reply at the partner",
	Defects: []string{"SrcQPLost", "WCFlagsLost"}, Run: rig.PairBody(func(d *rig.Pair) {
		l := newPair(d, setup{qpType: verbs.QPTypeUD})
		// The partner needs a second queue pair: in datagram-iWARP, QPN 0 names the only one.
		newPair(d, setup{qpType: verbs.QPTypeUD})
		wc := expectDelivery(l.partner, l.dut, 24)
		attr := rig.Result(verbs.InitAHFromWC(1, uint8(l.dut.GIDEntry().Index), &wc, l.dut.mem.Buf[recvOffset:]))(l.dut, "an address in the header area")
		ah := rig.Result(l.dut.PD.CreateAH(attr))(l.dut, "a handle of that address")
		wr := l.dut.sendWR(4, 0, 32)
		wr.UD = verbs.UD{AH: ah, QPN: wc.SrcQP, QKey: qKey}
		l.dut.expectArrives(l.partner, wr, l.dut.mem.Buf[:32])
	}),
}, {
	ID: "verbs/ah/of-another-domain", Cite: cite("C10-10", "verbs/ah/4"),
	Title:   "A datagram with an address handle of another domain is refused or fails, and is not sent",
	Sends:   "a datagram with such a handle; then a valid one",
	Expects: "the first does not succeed, and only the second arrives",
	Defects: []string{"AHsAnyDomain"}, Run: onPair(setup{qpType: verbs.QPTypeUD}, func(l *qpPair) {
		ah := rig.Result(otherPD(l.dut.Rig).CreateAH(l.dut.PathTo(l.partner.Rig)))(l.dut, "an address handle in another domain")
		l.partner.postRecv(1, recvOffset, 64)
		wr := l.dut.sendWR(2, 64, 32)
		wr.UD.AH = ah
		l.dut.expectFailureStatus("a datagram with a handle of another domain", wr, verbs.WCLocQPOpErr, verbs.WCLocProtErr)
		if l.dut.QueryQP(l.dut.qp).State == sqe {
			l.dut.Must("SQE to RTS", l.dut.qp.Modify(verbs.QPAttr{State: rts}, verbs.QPAttrState))
		}
		l.dut.execute(l.dut.sendWR(3, 0, 24))
		l.partner.expectMessage(1, recvOffset, l.dut.mem.Buf[:24])
	}),
}, {
	ID: "verbs/ah/missing", Cite: cite("ibv_post_send(3)", "verbs/ah/5"),
	Title:   "A datagram without an address handle is refused, and the queue pair continues",
	Sends:   "a datagram without a handle; then a valid one",
	Expects: "the first is refused, and the second arrives",
	Defects: []string{"BadPostsSwallowed"}, Run: onPair(setup{qpType: verbs.QPTypeUD}, func(l *qpPair) {
		wr := l.dut.sendWR(2, 0, 32)
		wr.UD.AH = nil
		l.dut.expectPostRefused("a datagram without an address handle", wr, verbs.ErrInvalid)
		expectDelivery(l.dut, l.partner, 24)
	}),
}, {
	ID: "verbs/ah/closed", Cite: cite(packageVerbs, "verbs/ah/6"),
	Title:   "A datagram with a closed address handle is refused, and the queue pair continues",
	Sends:   "a datagram with a handle that was closed; then a valid one",
	Expects: "the first is refused, and the second arrives",
	Defects: []string{"ClosedAHsUsed"}, Run: onPair(setup{qpType: verbs.QPTypeUD}, func(l *qpPair) {
		wr := l.dut.sendWR(2, 0, 32)
		wr.UD.AH = rig.Result(l.dut.PD.CreateAH(l.dut.PathTo(l.partner.Rig)))(l.dut, "an address handle")
		l.dut.Must("an address handle that can be closed", wr.UD.AH.Close())
		l.dut.expectPostRefused("a datagram with a closed address handle", wr, nil)
		expectDelivery(l.dut, l.partner, 24)
	}),
}})

// unusedGIDIndex returns a GID index without an address: the first after the device's table or, if
// that has 256 entries or more, the index of an empty one. Without an empty entry the case ends as
// unsupported.
func unusedGIDIndex(r *rig.Rig) uint8 {
	n := r.QueryPort().GIDs
	if n <= math.MaxUint8 {
		return uint8(n)
	}
	for i := range math.MaxUint8 + 1 {
		g, err := r.Device.QueryGID(1, i)
		if errors.Is(err, verbs.ErrNotFound) || err == nil && g.GID == (verbs.GID{}) {
			return uint8(i)
		}
	}
	rig.Abort(fmt.Errorf("all entries of the GID table that an index can name are in use: %w", conformance.ErrBenchCannot))
	return 0
}
