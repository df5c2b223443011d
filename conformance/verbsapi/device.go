package verbsapi

import (
	"fmt"
	"io"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var deviceCases = []conformance.Case{{
	ID: "verbs/device/limits-fit-the-claims", Cite: cite("ibv_query_device(3)", "verbs/device/1"),
	Title:   "A device has a limit above zero for every kind of object that it claims",
	Expects: "at least one port, domain, region, completion queue, queue pair, request and list entry; and one shared receive queue, window, address handle and XRC domain where they are claimed",
	Defects: []string{"LimitsForgotten"}, Run: rig.Body(func(r *rig.Rig) {
		a := r.QueryDevice()
		for _, l := range []struct {
			what  string
			claim verbs.Caps
			limit int
		}{
			{"ports", 0, int(a.Ports)},
			{"protection domains", 0, a.MaxPD},
			{"memory regions", 0, a.MaxMR},
			{"completion queues", 0, a.MaxCQ},
			{"completions a queue", 0, a.MaxCQE},
			{"queue pairs", 0, a.MaxQP},
			{"requests a queue", 0, a.MaxQPWR},
			{"entries a list", 0, a.MaxSGE},
			{"shared receive queues", verbs.CapSRQ, a.MaxSRQ},
			{"receives of a shared queue", verbs.CapSRQ, a.MaxSRQWR},
			{"entries a shared receive", verbs.CapSRQ, a.MaxSRQSGE},
			{"memory windows", verbs.CapMWType1, a.MaxMW},
			{"memory windows", verbs.CapMWType2, a.MaxMW},
			{"address handles", verbs.CapUD, a.MaxAH},
			{"XRC domains", verbs.CapXRC, a.MaxXRCD},
		} {
			r.Check(!r.Caps.Has(l.claim) || l.limit > 0, "a number of "+l.what+" above 0", "%d", l.limit)
		}
	}),
}, {
	ID: "verbs/device/claims-are-kept", Cite: cite("ibv_query_device(3)", "verbs/device/2"),
	Title:   "A device creates the objects that it claims to support",
	Expects: "a shared receive queue, windows of both types, an address handle, an XRC domain, a larger completion queue and a connection manager, each where it is claimed",
	Defects: []string{"ClaimsAndRefuses"}, Run: rig.Body(func(r *rig.Rig) {
		for _, k := range []struct {
			what  string
			claim verbs.Caps
			ask   func() error
		}{
			{"a shared receive queue", verbs.CapSRQ, func() error { return errorOf(r.Device.CreateSRQ(srqInit(r))) }},
			{"a window of type 1", verbs.CapMWType1, func() error { return errorOf(r.PD.AllocMW(verbs.MWType1)) }},
			{"a window of type 2", verbs.CapMWType2, func() error { return errorOf(r.PD.AllocMW(verbs.MWType2)) }},
			{"an address handle", verbs.CapUD, func() error { return errorOf(r.PD.CreateAH(r.PathTo(r))) }},
			{"an XRC domain", verbs.CapXRC, func() error { return errorOf(r.Device.OpenXRCD()) }},
			{"a larger completion queue", verbs.CapResizeCQ, func() error { return r.CQ.Resize(r.CQ.Depth() + 1) }},
			{"a connection manager", verbs.CapCM, func() error { return errorOf(r.Device.CM()) }},
		} {
			if r.Caps.Has(k.claim) {
				r.Must(k.what, k.ask())
			}
		}
	}),
}, {
	ID: "verbs/device/unknown-kinds-refused", Cite: cite("ibv_create_qp(3)", "verbs/device/3"),
	Title:   "Queue pairs, windows and shared receive queues of an unknown type are refused",
	Expects: "a refusal of queue pairs of types 0, 5, 11 and 77, of windows of types 0 and 3, and of shared receive queues of type 9",
	Defects: []string{"KindsUnchecked"}, Run: rig.Body(func(r *rig.Rig) {
		for _, kind := range []verbs.QPType{0, 5, 11, 77} {
			_, err := r.Device.CreateQP(verbs.QPInit{Type: kind, PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: smallCaps})
			r.MustFail(fmt.Sprintf("a queue pair of type %d", kind), err, nil)
		}
		for _, kind := range []verbs.MWType{0, 3} {
			r.MustFail(fmt.Sprintf("a window of type %d", kind), errorOf(r.PD.AllocMW(kind)), nil)
		}
		odd := srqInit(r)
		odd.Type = 9
		r.MustFail("a shared receive queue of type 9", errorOf(r.Device.CreateSRQ(odd)), nil)
	}),
}, {
	ID: "verbs/device/guid-of-its-own", Cite: cite("ibv_get_device_guid(3)", "verbs/device/5"),
	Title:   "A device has a GUID, which another device does not have",
	Sends:   "nothing: the GUIDs of two devices are queried",
	Expects: "different GUIDs other than 0, which are also in the attributes of the devices",
	Defects: []string{"GUIDsEqual"}, Run: rig.Body(func(r *rig.Rig) {
		p := rig.NewPair(r)
		for _, d := range []*rig.Rig{p.DUT, p.Partner} {
			guid, attr := d.Device.Info().GUID, d.QueryDevice()
			r.Check(guid != 0 && attr.NodeGUID == guid, fmt.Sprintf("a GUID other than 0, and %#x in the attributes", guid), "%#x", attr.NodeGUID)
		}
		own, other := p.DUT.Device.Info().GUID, p.Partner.Device.Info().GUID
		r.Check(own != other, "different GUIDs of two devices", "%#x twice", own)
	}),
}, {
	ID: "verbs/port/there-is-no-other", Cite: cite("ibv_query_port(3)", "verbs/port/1"),
	Title:   "A device can be queried for each of its ports, and for no other",
	Expects: "the attributes, a GID and a P_Key, if there are partitions, of ports 1 to the last, and a refusal for port 0 and the one after the last",
	Defects: []string{"PortUnchecked"}, Run: rig.Body(func(r *rig.Rig) {
		last := r.QueryDevice().Ports
		for port := range last + 2 {
			attr, err := r.Device.QueryPort(port)
			_, gidErr := r.Device.QueryGID(port, 0)
			_, pkeyErr := r.Device.QueryPKey(port, 0)
			if port == 0 || port > last {
				r.MustFail(fmt.Sprintf("a query of port %d of %d", port, last), err, nil)
				r.MustFail(fmt.Sprintf("a query of a GID of port %d of %d", port, last), gidErr, nil)
				r.MustFail(fmt.Sprintf("a query of a P_Key of port %d of %d", port, last), pkeyErr, nil)
				continue
			}
			r.Must(fmt.Sprintf("port %d", port), err)
			r.Must(fmt.Sprintf("a GID of port %d", port), gidErr)
			if attr.PKeys > 0 { // iWARP has no partitions
				r.Must(fmt.Sprintf("a P_Key of port %d", port), pkeyErr)
			}
		}
	}),
}, {
	ID: "verbs/port/attributes-make-sense", Cite: cite("ibv_query_port(3)", "verbs/port/2"),
	Title:   "A port in use is active, with a valid MTU and message size",
	Expects: "the state ACTIVE; an active MTU that is one of the five and not above the largest; messages of some length; at least one GID",
	Defects: []string{"PortMTUsSwapped"}, Run: rig.Body(func(r *rig.Rig) {
		p := r.QueryPort()
		r.Check(p.State == verbs.PortActive, "an active port", "%v", p.State)
		r.Check(p.ActiveMTU.Bytes() > 0 && p.ActiveMTU <= p.MaxMTU && p.MaxMTU.Bytes() > 0,
			"an active MTU of the five, and not above the largest", "%v, and the largest %v", p.ActiveMTU, p.MaxMTU)
		r.Check(p.MaxMsg > 0, "messages of some length", "none above %d", p.MaxMsg)
		r.Check(p.GIDs > 0, "a GID", "a table of %d", p.GIDs)
	}),
}, {
	ID: "verbs/port/tables-end", Cite: cite("ibv_query_gid(3)", "verbs/port/3"),
	Title:   "The GID and P_Key tables have the length of the port attributes: all entries can be queried, and none beyond",
	Expects: "every index below the length can be queried; the length itself, 10000 and -1 are refused",
	Defects: []string{"TablesEndless"}, Run: rig.Body(func(r *rig.Rig) {
		p := r.QueryPort()
		for i := range p.GIDs {
			g := rig.Result(r.Device.QueryGID(1, i))(r, fmt.Sprintf("GID %d of %d", i, p.GIDs))
			r.Check(g.Index == i, fmt.Sprintf("the entry of index %d", i), "that of %d", g.Index)
		}
		for i := range p.PKeys {
			rig.Result(r.Device.QueryPKey(1, i))(r, fmt.Sprintf("P_Key %d of %d", i, p.PKeys))
		}
		for _, i := range []int{-1, p.GIDs, 10000} {
			r.MustFail(fmt.Sprintf("GID %d of %d", i, p.GIDs), errorOf(r.Device.QueryGID(1, i)), nil)
		}
		for _, i := range []int{-1, max(1, p.PKeys), 10000} { // iWARP may have an entry that the attributes do not count
			r.MustFail(fmt.Sprintf("P_Key %d of %d", i, p.PKeys), errorOf(r.Device.QueryPKey(1, i)), nil)
		}
	}),
}, {
	ID: "verbs/port/gids-are-the-addresses", Cite: cite("ibv_query_gid_ex(3)", "verbs/port/4"), Needs: verbs.CapUD,
	Title:   "The addresses of a port that routes by IP are in its GID table",
	Expects: "each of the device's addresses in one entry",
	Defects: []string{"GIDsWrong"}, Run: rig.Body(func(r *rig.Rig) {
		table := gids(r)
		for _, own := range r.Local {
			r.Check(slices.Contains(table, own.String()), fmt.Sprintf("%v in the GID table", own), "%v", table)
		}
	}),
}, {
	ID: "verbs/port/addresses-go-and-come", Cite: cite("ibv_get_async_event(3)", "verbs/port/5"), Setup: conformance.Setup{TwoAddresses: true},
	Title:   "An address that is removed from a port and added again leaves the GID table and returns to it, with events",
	Sends:   "nothing: each of the two addresses of the port is removed and added again",
	Expects: "GID_CHANGE of port 1 and a table without the address, then GID_CHANGE and a table with both",
	Defects: []string{"GIDsNeverChange"}, Run: rig.Body(func(r *rig.Rig) {
		if r.SetAddress == nil {
			rig.BenchCannot("remove an address from the device")
		}
		for _, own := range r.Local {
			if !slices.Contains(gids(r), own.String()) {
				rig.NotApplicable("the device's GIDs are not its addresses")
			}
		}
		for _, changed := range r.Local {
			for _, present := range []bool{false, true} {
				r.Must("an address that can be removed and added", r.SetAddress(changed, present))
				e := r.ExpectEvent(verbs.EventGIDChange)
				r.Check(e.Port == 1, "an event of port 1", "of port %d", e.Port)
				r.Sleep(shortWait) // a table with several kinds of entries for an address changes several times
				table := gids(r)
				for _, own := range r.Local {
					want := present || own != changed
					r.Check(slices.Contains(table, own.String()) == want, fmt.Sprintf("%v in the GID table: %v", own, want), "%v", table)
				}
				for _, err := r.Device.WaitAsync(0); err == nil; _, err = r.Device.WaitAsync(0) {
				}
			}
		}
	}),
}, {
	ID: "verbs/port/opened-while-the-link-is-down", Cite: cite("ibv_query_port(3)", "verbs/port/6"), Setup: conformance.Setup{Family: 4},
	Title:   "The port of a device that is opened while its link is down is not active until the link comes up",
	Sends:   "nothing: the link goes down, the device is closed and opened, and the link comes up",
	Expects: "another state than ACTIVE; then PORT_ACTIVE of port 1, and ACTIVE",
	Defects: []string{"OpenedActive"}, Run: rig.Body(func(r *rig.Rig) {
		if r.Reopen == nil {
			rig.BenchCannot("reopen the device")
		}
		r.Must("a link that can be set down", r.SetLink(false))
		r.Must("a device that can be reopened", r.Reopen())
		active := func() bool { return r.QueryPort().State == verbs.PortActive }
		for until := r.Now() + r.ResponseTimeout(); active() && r.Now() < until; {
			r.Sleep(shortWait)
		}
		r.Check(!active(), "a port that is not active", "%v", r.QueryPort().State)
		r.Must("a link that can be set up", r.SetLink(true))
		e := r.ExpectEvent(verbs.EventPortActive, verbs.EventPortErr, verbs.EventGIDChange) // of the link that is down, or of its addresses
		r.Check(e.Port == 1, "an event of port 1", "of port %d", e.Port)
		r.Check(active(), "an active port", "%v", r.QueryPort().State)
	}),
}, {
	ID: "verbs/counters/same-names-in-the-same-order", Cite: cite(packageVerbs, "verbs/counters/1"),
	Title:   "The counters of a device have different names, and always the same order",
	Sends:   "messages in both directions, and a queue pair that fails",
	Expects: "the same names in the same order before and after",
	Defects: []string{"CountersShuffled"}, Run: onPair(setup{}, func(l *qpPair) {
		before := counterNames(l.dut.Rig)
		l.expectBothDeliver()
		l.dut.ToState(l.dut.qp, verbs.QPStateErr)
		after := counterNames(l.dut.Rig)
		l.dut.Check(slices.Equal(before, after), fmt.Sprintf("the counters %v", before), "%v", after)
		slices.Sort(after)
		l.dut.Check(len(slices.Compact(after)) == len(before), "a name for each counter", "a name that two have in %v", before)
	}),
}, {
	ID: "verbs/counters/never-fall", Cite: cite(packageVerbs, "verbs/counters/2"),
	Title:   "The counters of a device never decrease, and reading does not change them",
	Sends:   "messages in both directions, and reads of the counters in between",
	Expects: "no counter ever decreases",
	Defects: []string{"CountersReset"}, Run: onPair(setup{}, func(l *qpPair) {
		counterNames(l.dut.Rig) // unsupported without counters
		was := make(map[string]uint64)
		check := func() {
			for _, c := range l.dut.Device.Counters() {
				l.dut.Check(c.Value >= was[c.Name], fmt.Sprintf("%s at %d or more", c.Name, was[c.Name]), "%d", c.Value)
				was[c.Name] = c.Value
			}
		}
		for range 3 {
			l.expectBothDeliver()
			check()
			check() // reading must not reset counters
		}
	}),
}}

// gids returns the GID table as text.
func gids(r *rig.Rig) (table []string) {
	n := r.QueryPort().GIDs
	for i := range n {
		g := rig.Result(r.Device.QueryGID(1, i))(r, fmt.Sprintf("GID %d of %d", i, n))
		table = append(table, g.GID.String())
	}
	return table
}

// counterNames returns the names of the device's counters. Without any the case is unsupported.
func counterNames(r *rig.Rig) (names []string) {
	for _, c := range r.Device.Counters() {
		names = append(names, c.Name)
	}
	if len(names) == 0 {
		rig.Abort(fmt.Errorf("the device has no counters: %w", conformance.ErrBenchCannot))
	}
	return names
}

var limitCases = []conformance.Case{
	asManyAsClaimedCase("queue-pairs", []string{"LimitsOverstated"}, 0,
		func(a *verbs.DeviceAttr) int { return a.MaxQP },
		func(r *rig.Rig) func() (io.Closer, error) {
			init := verbs.QPInit{
				Type: rig.DefaultQPType(r), PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ,
				Caps: verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
			}
			return func() (io.Closer, error) { return r.Device.CreateQP(init) }
		}),
	asManyAsClaimedCase("address-handles", []string{"LimitsOverstated", "ClosedHandlesCount"}, verbs.CapUD,
		func(a *verbs.DeviceAttr) int { return a.MaxAH },
		func(r *rig.Rig) func() (io.Closer, error) {
			path := r.PathTo(r)
			return func() (io.Closer, error) { return r.PD.CreateAH(path) }
		}),
}

// maxObjects is the largest number of objects that a case creates. It limits the use of memory.
const maxObjects = 1 << 18

// asManyAsClaimedCase returns the case that a device creates as many objects of this kind as it
// claims. limit returns the claimed number; newCreate returns a function that creates one object.
func asManyAsClaimedCase(kind string, defects []string, needs verbs.Caps, limit func(*verbs.DeviceAttr) int, newCreate func(*rig.Rig) func() (io.Closer, error)) conformance.Case {
	return conformance.Case{
		ID:    "verbs/device/as-many-" + kind + "-as-claimed",
		Title: "A device makes as many " + withSpaces(kind) + " as it claims, also in place of closed ones",
		// SHOULD: the manual page calls the numbers upper limits, which a lack of memory may
		// reduce. An idle device has enough memory.
		Cite: cite("ibv_query_device(3)", "verbs/device/4"), Level: conformance.Should, Needs: needs,
		Labels:  []string{conformance.Slow},
		Expects: "as many as claimed; then others in place of some that are closed",
		Defects: defects,
		Run: rig.Body(func(r *rig.Rig) {
			attr := r.QueryDevice()
			n := limit(&attr)
			if n > maxObjects {
				rig.Abort(fmt.Errorf("the device claims %d %s, and at most %d are tried: %w", n, withSpaces(kind), maxObjects, conformance.ErrBenchCannot))
			}
			create := newCreate(r)
			var last [2]io.Closer
			for i := range n {
				object, err := create()
				r.Must(fmt.Sprintf("number %d of %d %s", i+1, n, withSpaces(kind)), err)
				last[i%len(last)] = object
			}
			for _, object := range last {
				r.Must("an object that can be closed", object.Close())
			}
			for range last {
				_, err := create()
				r.Must("another object in place of a closed one", err)
			}
		}),
	}
}
