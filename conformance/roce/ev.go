package roce

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var eventCases = overRC.Cases([]conformance.Case{{
	ID: "ev/qp/access-error-reported", Cite: ibta("C9-222.1.1", "async/1"),
	Title:   "A request that is refused for its key raises QP_ACCESS_ERR at the responder",
	Sends:   "a WRITE with the key of a deregistered region; the same with a READ to another queue pair",
	Expects: "a NAK for the access, and the event of that queue pair, once",
	Defects: []string{"NoQPEvents"}, Run: OnPort(func(p *Port) {
		for _, op := range []remoteOp{writeOp, readOp} {
			c := p.connect(Setup{})
			c.exchange(op.packet(c.PeerPSN(0), c.deregisteredRETH()), c.deviceNak(0, ib.NakRemoteAccess, 0))
			c.expectQPEvent(verbs.EventQPAccessErr)
		}
		p.expectNoMoreEvents()
	}),
}, {
	ID: "ev/qp/request-error-reported", Cite: ibta("C9-222.1.1", "async/1"),
	Title:   "A request that is refused as invalid raises QP_REQ_ERR at the responder",
	Sends:   "a WRITE_MIDDLE without a FIRST",
	Expects: "a NAK for an invalid request, and the event of the queue pair, once",
	Defects: []string{"NoQPEvents"}, Run: onConn(Setup{}, func(c *Conn) {
		c.exchange(ib.New(ib.OpWriteMiddle, c.PeerPSN(0), Data(MTU)).AckReq(), c.deviceNak(0, ib.NakInvalidRequest, 0))
		c.expectQPEvent(verbs.EventQPReqErr)
		c.expectNoMoreEvents()
	}),
}, {
	ID: "ev/qp/not-lost-with-another-queue-pair", Cite: ibta("C9-222.1.1", "async/1"),
	Title:   "The event of a queue pair is not lost when another one, which has an event too, is destroyed",
	Sends:   "WRITE_MIDDLEs without a FIRST to two queue pairs, of which one is destroyed before its event is taken",
	Expects: "QP_REQ_ERR of the other",
	Defects: []string{"NoQPEvents", "DestroyDropsEvents"}, Run: onConn(Setup{}, func(c *Conn) {
		gone := c.secondConn(Setup{})
		for _, conn := range []*Conn{c, gone} {
			conn.exchange(ib.New(ib.OpWriteMiddle, conn.PeerPSN(0), Data(MTU)).AckReq(), conn.deviceNak(0, ib.NakInvalidRequest, 0))
		}
		c.Must("a queue pair that can be destroyed", gone.QP.Close())
		c.expectQPEvent(verbs.EventQPReqErr)
	}),
}, {
	ID: "ev/qp/communication-established-reported", Cite: ibta("", "async/2"),
	Title:   "The first packet that a queue pair receives in RTR raises COMM_EST",
	Sends:   "a SEND to a queue pair in RTS, to one in RTR a packet of another partition and two SENDs; and a SEND to one of UC in RTR, if supported; a SEND to each again after RESET and RTR",
	Expects: "an event for the first SEND to each queue pair in RTR, also after RESET, and no other",
	Defects: []string{"NoQPEvents", "CommEstOncePerQP"}, Run: OnPort(func(p *Port) {
		rtr, rts := p.connect(Setup{state: verbs.QPStateRTR, Receives: 2}), p.connect(Setup{Receives: 1})
		p.Sync() // the synchronization queue pair also raises an event
		p.pendingEvents()
		p.ExpectNoEvent()
		rts.expectAccepted(0)
		p.ExpectNoEvent()
		rtr.expectDropped(rtr.peerSend(0, 16).WithPKey(p.pkey(0) ^ 0x6dcb))
		p.ExpectNoEvent()
		rtr.expectAccepted(0)
		rtr.expectQPEvent(verbs.EventCommEst)
		rtr.expectAccepted(1)
		p.ExpectNoEvent()
		rtr.backToRTR()
		rtr.expectAccepted(0)
		rtr.expectQPEvent(verbs.EventCommEst)
		if p.Caps.Has(verbs.CapUC) {
			uc := ucSetup(1)
			uc.state = verbs.QPStateRTR
			c := p.connect(uc)
			for range 2 {
				c.expectUCDelivery(0, 16, 1)
				c.expectQPEvent(verbs.EventCommEst)
				p.ExpectNoEvent()
				c.backToRTR()
			}
		}
	}),
}, {
	ID: "ev/port/link-change-reported", Cite: ibta("", "async/3"),
	// Over IPv4: some hosts remove IPv6 addresses from a port whose link is down,
	// which breaks the connection.
	Setup:   ipv4,
	Title:   "The port raises PORT_ERR when its link goes down and PORT_ACTIVE when it comes up",
	Sends:   "nothing: the link goes down and up; then a SEND",
	Expects: "both events, a matching port state, and a connection that continues",
	Defects: []string{"PortEventsMissing"}, Run: acceptsAfter(func(c *Conn) {
		c.awaitPortActive(true)
		c.Must("a link that can be set down", c.SetLink(false))
		c.expectPortEvent(verbs.EventPortErr)
		c.awaitPortActive(false)
		c.Must("a link that can be set up", c.SetLink(true))
		c.expectPortEvent(verbs.EventPortActive)
		c.awaitPortActive(true)
	}),
}, {
	ID:   "ev/gid/removed-address-receives-nothing",
	Cite: ibta("", "async/4"), Setup: conformance.Setup{TwoAddresses: true},
	Title:   "After an address is removed from the port, packets to it are dropped, and its connections send nothing from another address",
	Sends:   "SENDs to a connection of the second address, and datagrams if supported, before and after that is removed, then a SEND to a connection of the first",
	Expects: "an ACK, nothing at all, and an ACK; and nothing for the requests that the device posts on the queue pairs that are cut off",
	Defects: []string{"RemovedAddressUsed"}, Run: OnPort(func(p *Port) {
		second := newPort(p.Rig)
		second.deviceAddr = p.Local[1]
		index := p.gidIndex(second.deviceAddr)
		gone := second.connect(Setup{Receives: 2, Modify: func(a *verbs.QPAttr) { a.AH.GRH.SGIDIndex = index }})
		stays := p.connect(Setup{Receives: 1})
		gone.expectAccepted(0)
		datagrams := p.Caps.Has(verbs.CapUD)
		var d *udPort
		var ah verbs.AH
		if datagrams {
			d = second.newUDPort(2, nil)
			path := p.peerAttr(p.Peer).AH
			path.GRH.SGIDIndex = index
			ah = rig.Result(p.PD.CreateAH(path))(p, "an address handle")
			d.expectDelivery(24)
		}
		p.setAddress(second.deviceAddr, false)
		gone.Send(gone.peerSend(1, 16))
		if datagrams {
			d.SendPacket(d.datagram(Data(16)))
		}
		p.expectSilence(silencePeriod)
		_, _ = gone.postSend(9) // may fail or not, but the SEND must not be sent or succeed
		p.expectSilence(silencePeriod)
		p.ExpectNoSuccess()
		if datagrams {
			_, _ = d.QP.PostSend([]verbs.SendWR{d.addressed(ah, d.SendWR(10, 8))}) // may complete with any status
			p.expectSilence(silencePeriod)
			p.Completions()
		}
		stays.expectAccepted(0)
	}),
}, {
	ID: "ev/gid/only-address-goes-and-comes", Cite: ibta("", "async/4"), Setup: ipv6,
	Title:   "A port whose only address is removed raises GID_CHANGE and is silent until the address is back, over IPv6",
	Sends:   "a SEND before the address is removed, one while it is removed, and one to another connection when it is back",
	Expects: "GID_CHANGE and a GID table without the address; nothing for the SEND, nor for the request that the device posts; then GID_CHANGE, the address, and an ACK",
	Defects: []string{"RemovedAddressUsed"}, Run: onRC(removeAndRestoreAddress),
}, {
	ID: "ev/gid/only-ipv4-address-goes-and-comes", Cite: ibta("", "async/4"), Setup: ipv4,
	Title:   "A port whose only address is removed raises GID_CHANGE and is silent until the address is back, over IPv4",
	Sends:   "a SEND before the address is removed, one while it is removed, and one to another connection when it is back",
	Expects: "GID_CHANGE and a GID table without the address; nothing for the SEND, nor for the request that the device posts; then GID_CHANGE, the address, and an ACK",
	Defects: []string{"RemovedAddressUsed"}, Run: onRC(removeAndRestoreAddress),
}, {
	ID: "ev/mig/migrated-sender-says-so", Cite: ibta("", "mig/1"), Level: conformance.May, Needs: verbs.CapAutoMigration,
	Title:   "A queue pair sends MigReq 1 in state MIGRATED, and 0 in state ARMED",
	Sends:   "a SEND and ACKs, with MigReq 0 once an alternate path is set; sets MIGRATED at first and when the path is armed",
	Expects: "MigReq 1 in requests and ACKs at first, 0 when the alternate path is armed, and 1 on the alternate path after the application requests migration; on another connection, 1 after a RESET with an armed path",
	Defects: []string{"MigReqZero"}, Run: onRC(func(c *Conn) {
		migrated := func() error {
			return c.QP.Modify(verbs.QPAttr{State: verbs.QPStateRTS, PathMigState: verbs.MigMigrated}, verbs.QPAttrState|verbs.QPAttrPathMigState)
		}
		_ = migrated() // it is migrated already: the device may refuse that
		c.expectMigReq(0, true)
		c.armAltPath()
		c.expectMigReq(1, false)
		c.expectMigState(verbs.MigArmed)
		c.Must("a path migration", migrated())
		c.expectMigState(verbs.MigMigrated)
		c.Peer = c.PeerAddr(1)
		c.expectMigReq(2, true)
		c = c.secondConn(Setup{Receives: 1})
		c.armAltPath()
		c.expectMigReq(0, false)
		c.ToState(c.QP, verbs.QPStateReset)
		c.reconnect()
		c.PostRecv(c.QP, 1, c.LocalMem.SGE(0, 64))
		c.expectMigReq(0, true)
	}),
}, {
	ID:   "ev/mig/migreq-moves-an-armed-qp",
	Cite: ibta("", "mig/1", "mig/2"), Level: conformance.May, Needs: verbs.CapAutoMigration,
	Title:   "A queue pair with an armed alternate path migrates when its peer sends MigReq 1 after 0, and raises PATH_MIG",
	Sends:   "a SEND and an ACK with MigReq 1, and again with MigReq 0; then a SEND with MigReq 1 from the alternate address",
	Expects: "the state REARM until MigReq is 0; then PATH_MIG, the answer and further requests on the alternate path, and the state MIGRATED",
	Defects: []string{"MigrationIgnored", "RearmArmsOnAnyPacket"}, Run: onRC(func(c *Conn) {
		c.armAltPath()
		c.expectAccepted(0, ib.Packet.MigReq)
		c.expectMigState(verbs.MigRearm)
		c.PostSend(c.QP, c.SendWR(9, 8))
		c.expect(ib.SendOnly(c.DevicePSN(0), nil))
		c.completeWith(c.peerAck(0, 1).MigReq(), 9)
		c.expectMigState(verbs.MigRearm)
		c.expectMigReq(1, false)
		c.expectMigState(verbs.MigArmed)
		c.ExpectNoEvent()
		c.Peer = c.PeerAddr(1)
		c.expectAccepted(2, ib.Packet.MigReq)
		c.expectQPEvent(verbs.EventPathMig)
		c.expectMigState(verbs.MigMigrated)
		c.PostSend(c.QP, c.SendWR(9, 8))
		c.expect(ib.SendOnly(ib.AnyPSN, nil))
	}),
}, {
	ID:   "ev/mig/uc-migrates-with-its-peer",
	Cite: ibta("", "mig/1", "mig/4"), Level: conformance.May, Needs: verbs.CapAutoMigration | verbs.CapUC,
	Title:   "A UC queue pair with an armed alternate path migrates when its peer sends MigReq 1 after 0, and raises PATH_MIG",
	Sends:   "UC SENDs: with MigReq 0, with MigReq 1 from the alternate address, and from the old one",
	Expects: "MigReq 0 and the state ARMED after the first; then PATH_MIG, the state MIGRATED, requests with MigReq 1 to the alternate address, and nothing for the last",
	Defects: []string{"UCKeepsPath"}, Run: onUC(3, func(c *Conn) {
		old := c.Peer
		c.armAltPath()
		c.Send(noMigReq(ucSendOnly(c.PeerPSN(0), 16)))
		c.ExpectRecv(1, 16)
		c.expectMigState(verbs.MigArmed)
		c.PostSend(c.QP, c.SendWR(9, 8))
		c.expect(noMigReq(ib.SendOnly(c.DevicePSN(0), nil).On(ib.UC)))
		c.ExpectCompletion(9, verbs.WCSuccess)
		c.Peer = c.PeerAddr(1)
		c.Send(ucSendOnly(c.PeerPSN(1), 16).MigReq())
		c.ExpectRecv(2, 16)
		c.expectQPEvent(verbs.EventPathMig)
		c.expectMigState(verbs.MigMigrated)
		c.PostSend(c.QP, c.SendWR(10, 8))
		c.expect(ib.SendOnly(c.DevicePSN(1), nil).On(ib.UC).MigReq())
		c.ExpectCompletion(10, verbs.WCSuccess)
		c.Send(ucSendOnly(c.PeerPSN(2), 24).From(old)) // dropped
		c.expectUCDelivery(2, 16, 3)
	}),
}, {
	ID: "ev/mig/alternate-path-becomes-the-primary", Cite: ibta("", "mig/1", "mig/4"), Level: conformance.May, Needs: verbs.CapAutoMigration,
	Title:   "A queue pair that has migrated uses the alternate path with its traffic class and timeout, drops packets of the old path, and can migrate again",
	Sends:   "to an armed queue pair, whose first alternate path was replaced: MigReq 1 on its path, then on the alternate one, and SENDs on the old path; twice",
	Expects: "no response on the old path and no migration, but PATH_MIG_ERR; PATH_MIG, the attributes of the alternate path in a query and in effect, and nothing for the old path; the same back again",
	Defects: []string{"MigrationIgnored", "MigrationKeepsTimeout", "AlternatePathNotReplaced"}, Run: onConn(Setup{Receives: 8, Modify: withTimeoutAndRetries(timeout67ms, 7)}, func(c *Conn) {
		for i := range 2 {
			c.migrate(i)
		}
	}),
}, {
	ID: "ev/mig/alternate-path-has-its-own-pkey", Cite: ibta("", "mig/4"), Level: conformance.May, Needs: verbs.CapAutoMigration,
	Title:   "A queue pair that has migrated uses the P_Key of its alternate path",
	Sends:   "a SEND with another P_Key of the port's table on the alternate path, after a migration, and an ACK with it",
	Expects: "an ACK and a SEND with that P_Key, and its index in a query",
	Defects: []string{"MigrationKeepsPKey"}, Run: onRC(func(c *Conn) {
		table := c.pkeyTable()
		index := len(table) - 1
		if index == 0 || table[index] == 0 {
			rig.BenchCannot("the P_Key table of the port has no other key")
		}
		pkey, alt := table[index], c.pathTo(1)
		alt.AltPKeyIndex = uint16(index)
		c.armPath(alt)
		c.expectMigReq(0, false)
		c.expectMigState(verbs.MigArmed)
		c.Must("a path migration", c.QP.Modify(verbs.QPAttr{State: verbs.QPStateRTS, PathMigState: verbs.MigMigrated}, verbs.QPAttrState|verbs.QPAttrPathMigState))
		c.Peer = c.PeerAddr(1)
		c.Checker.PKeys[uint32(c.Attr.DestQPN)] = pkey
		c.exchange(c.peerSend(1, 16).WithPKey(pkey|pkeyFullMember), c.deviceAck(1, 2).WithPKey(pkey))
		c.PostSend(c.QP, c.SendWR(9, 8))
		c.expect(ib.SendOnly(c.DevicePSN(1), nil).WithPKey(pkey))
		c.Send(c.peerAck(1, 2).WithPKey(pkey | pkeyFullMember))
		c.ExpectRecv(2, 16)
		c.ExpectCompletion(9, verbs.WCSuccess)
		got := c.QueryQP(c.QP).PKeyIndex
		c.Check(got == alt.AltPKeyIndex, fmt.Sprintf("P_Key index %d", index), "%d", got)
	}),
}, {
	ID:   "ev/mig/exhausted-retries-use-the-alternate-path",
	Cite: ibta("V1C09-143#01", "mig/3"), Level: conformance.May, Needs: verbs.CapAutoMigration,
	Title:   "A requester that exhausts its retries goes on over its armed alternate path, or fails the request",
	Sends:   "nothing to a SEND with retry_cnt 1 on a queue pair in REARM, then on an armed one; if this is sent on the alternate path, its ACK from there",
	Expects: "two packets on the first path, and RETRY_EXC_ERR in REARM; of the armed queue pair RETRY_EXC_ERR, or the SEND with its PSN and MigReq 1 on the other path, PATH_MIG and success",
	Defects: []string{"MigReqZero", "RearmMigrates"}, Run: OnPort(func(p *Port) {
		modify := withTimeoutAndRetries(timeout67ms, 1)
		rearm := p.connect(Setup{Modify: modify})
		rearm.armAltPath()
		rearm.PostSend(rearm.QP, rearm.SendWR(9, 8))
		for range 2 {
			rearm.expect(ib.SendOnly(rearm.DevicePSN(0), nil))
		}
		rearm.ExpectCompletion(9, verbs.WCRetryExcErr)
		rearm.expectSilence(silencePeriod)
		c := p.connect(Setup{Receives: 4, Modify: modify})
		c.armAltPath()
		c.expectMigReq(0, false)
		c.expectMigState(verbs.MigArmed)
		c.PostSend(c.QP, c.SendWR(9, 8))
		for range 2 {
			c.expect(ib.SendOnly(c.DevicePSN(1), nil))
		}
		c.Peer = c.PeerAddr(1)
		if pkt, sent := c.NextPacket(8 * ib.AckTimeout(c.Attr.Timeout)); sent {
			c.checkPacket(c.fromDevice(ib.SendOnly(c.DevicePSN(1), nil).MigReq()), pkt)
			c.expectQPEvent(verbs.EventPathMig)
			c.expectMigState(verbs.MigMigrated)
			c.completeWith(c.peerAck(1, 2), 9)
			return
		}
		c.ExpectCompletion(9, verbs.WCRetryExcErr)
	}),
}, {
	ID:   "ev/port/no-subnet-management-events",
	Cite: annexA17("CA17-31, CA17-32", "async/5", "async/6"), Setup: ipv4,
	Title:   "No event of subnet management is raised: LID, subnet manager and P_Key changes, registration of clients",
	Sends:   "SENDs before and after the link goes down and up, and packets of another partition",
	Expects: "none of the events LID_CHANGE, SM_CHANGE, PKEY_CHANGE and CLIENT_REREGISTER",
	Defects: []string{"KeysIgnored"}, Run: onRC(func(c *Conn) {
		c.expectAccepted(0)
		c.expectDropped(c.peerSend(1, 16).WithPKey(c.pkey(0) ^ 0x6dcb))
		c.Must("a link that can be set down", c.SetLink(false))
		c.awaitPortActive(false)
		c.Must("a link that can be set up", c.SetLink(true))
		c.awaitPortActive(true)
		c.expectAccepted(1)
		for _, e := range c.pendingEvents() {
			c.Check(!slices.Contains(subnetEvents, e.Type), "no event of subnet management", "%v", e.Type)
		}
	}),
}, {
	ID: "ev/mig/migreq-means-nothing-unarmed", Cite: ibta("", "mig/2"),
	Title:   "MigReq is ignored by a queue pair without an armed alternate path",
	Sends:   "SENDs with MigReq 0, 1, 0 and 1",
	Expects: "an ACK on the same path and a completion for each, and no event",
	Defects: []string{"DropMigReqZero"}, Run: onRC(func(c *Conn) {
		for i := range 4 {
			c.expectAccepted(i, func(p ib.Packet) ib.Packet { p.BTH.MigReq = new(i%2 == 1); return p })
		}
		c.expectNoMoreEvents()
	}),
}})

// subnetEvents are events of subnet management, which RoCEv2 does not have.
var subnetEvents = []verbs.AsyncEventType{verbs.EventLIDChange, verbs.EventSMChange, verbs.EventPKeyChange, verbs.EventClientReregister}

// expectQPEvent fails the case unless the next event has this type and the connection's QP.
func (c *Conn) expectQPEvent(want verbs.AsyncEventType) {
	e := c.nextEvent(want)
	c.Check(e.Type == want && e.QP == c.QP, fmt.Sprintf("the event %v of queue pair %#x", want, c.QP.QPN()), "%v of %v", e.Type, e.QP)
}

// nextEvent returns the next asynchronous event, except for those of the queue pair by which Sync
// synchronizes with the device. The case fails if none arrives in time; its error names want.
func (p *Port) nextEvent(want verbs.AsyncEventType) verbs.AsyncEvent {
	for {
		e, err := p.Device.WaitAsync(p.ResponseTimeout())
		p.Check(!errors.Is(err, verbs.ErrTimeout), fmt.Sprintf("the event %v", want), "none in %v", p.ResponseTimeout())
		p.Must("events", err)
		if !p.isSyncEvent(e) {
			p.Note("event %v", e.Type)
			return e
		}
	}
}

// expectPortEvent fails the case unless the next asynchronous event has the type want and is of
// port 1. It skips GID_CHANGE events, unless want is GID_CHANGE: a host may remove addresses from a
// port whose link is down.
func (p *Port) expectPortEvent(want verbs.AsyncEventType) {
	e := p.nextEvent(want)
	for e.Type == verbs.EventGIDChange && e.Type != want {
		e = p.nextEvent(want)
	}
	p.Check(e.Type == want && e.Port == 1, fmt.Sprintf("%v of port 1", want), "%v of port %d", e.Type, e.Port)
}

// isSyncEvent reports whether an event is of the synchronization queue pair.
func (p *Port) isSyncEvent(e verbs.AsyncEvent) bool {
	return p.syncConn != nil && e.QP == p.syncConn.qp
}

// pendingEvents returns the pending asynchronous events.
func (p *Port) pendingEvents() (all []verbs.AsyncEvent) {
	e, err := p.Device.WaitAsync(0)
	for ; err == nil; e, err = p.Device.WaitAsync(0) {
		all = append(all, e)
	}
	if !errors.Is(err, verbs.ErrTimeout) {
		p.Must("events", err)
	}
	return all
}

// expectNoMoreEvents synchronizes with the device, and fails the case if an event is pending,
// except for events of the synchronization queue pair.
func (p *Port) expectNoMoreEvents() {
	p.Sync()
	for _, e := range p.pendingEvents() {
		p.Check(p.isSyncEvent(e), "no event", "%v", e.Type)
	}
}

// awaitCondition polls until isTrue returns true, or fails the case after the response timeout.
// want describes the condition.
func (p *Port) awaitCondition(want string, isTrue func() bool) {
	for until := p.Now() + p.ResponseTimeout(); !isTrue(); p.Sleep(shortWait) {
		p.Check(p.Now() < until, want, "not within %v", p.ResponseTimeout())
	}
}

// awaitPortActive fails the case unless the port becomes active, or inactive, in time.
func (p *Port) awaitPortActive(active bool) {
	p.awaitCondition(fmt.Sprintf("port active: %v", active), func() bool {
		return (p.QueryPort().State == verbs.PortActive) == active
	})
}

// armAltPath sets an alternate path to the peer's second address, and migration state REARM.
func (c *Conn) armAltPath() { c.armPath(c.pathTo(1)) }

// pathTo returns the attributes of an alternate path to the i-th address of the peer.
func (c *Conn) pathTo(i int) verbs.QPAttr {
	a := verbs.QPAttr{AltAH: c.Attr.AH}
	a.AltAH.GRH.DGID = verbs.GIDFrom(c.PeerAddr(i))
	return a
}

// armPath sets the alternate path of a, and migration state REARM.
func (c *Conn) armPath(a verbs.QPAttr) {
	a.State, a.PathMigState, a.AltPort = verbs.QPStateRTS, verbs.MigRearm, 1
	c.Must("an alternate path", c.QP.Modify(a, verbs.QPAttrState|verbs.QPAttrAltPath|verbs.QPAttrPathMigState))
}

// migrate moves the connection to its other path for the i-th time, from 0 on. The case fails
// unless the queue pair then uses the new path, with the traffic class and timeout of that, and not
// the old one.
func (c *Conn) migrate(i int) {
	old := c.Peer
	k, n := 3*i, 2*i // the next messages of the peer and of the device
	alt := c.pathTo(1 - i)
	alt.AltTimeout, alt.AltAH.GRH.TrafficClass = c.Attr.Timeout-3, []uint8{0x68, 0xb8}[i]
	c.armPath(c.pathTo(i)) // the next one replaces it
	c.armPath(alt)
	c.exchange(noMigReq(c.peerSend(k, 16)), noMigReq(c.deviceAck(k, uint32(k+1))))
	c.ExpectRecv(uint64(k+1), 16)
	c.expectMigState(verbs.MigArmed)
	c.Send(c.peerSend(k+1, 16).MigReq()) // not on the alternate path: dropped
	c.Sleep(shortWait)
	c.expectMigState(verbs.MigArmed)
	c.expectQPEvent(verbs.EventPathMigErr)
	c.ExpectNoEvent()

	c.Peer = c.PeerAddr(1 - i)
	c.expectAccepted(k+1, ib.Packet.MigReq)
	c.expectQPEvent(verbs.EventPathMig)
	a := c.QueryQP(c.QP)
	c.Check(a.PathMigState == verbs.MigMigrated && a.AH.GRH == alt.AltAH.GRH && a.Timeout == alt.AltTimeout,
		fmt.Sprintf("MIGRATED, %+v and timeout %d", alt.AltAH.GRH, alt.AltTimeout), "%v, %+v and %d", a.PathMigState, a.AH.GRH, a.Timeout)
	c.PostSend(c.QP, c.SendWR(9, 8))
	want := ib.SendOnly(c.DevicePSN(n), nil).MigReq()
	first := c.expect(want)
	c.Check(*first.IP.TClass>>2 == alt.AltAH.GRH.TrafficClass>>2, "the traffic class of the alternate path", "%#02x", *first.IP.TClass)
	limit := 4 * ib.AckTimeout(alt.AltTimeout)
	again := c.expect(want)
	for tries := 1; !c.Virtual && tries < 3 && again.At-first.At > limit; tries++ { // a busy machine delays one
		first, again = again, c.expect(want)
	}
	c.Check(again.At-first.At <= limit, fmt.Sprintf("a retransmission within %v, four timeouts of the alternate path", limit), "after %v", again.At-first.At)
	c.completeWith(c.peerAck(n, uint32(n+1)), 9)
	c.Send(c.peerSend(k+2, 16).From(old)) // dropped
	c.expectAccepted(k + 2)
	c.PostSend(c.QP, c.SendWR(10, 8))
	c.expect(ib.SendOnly(c.DevicePSN(n+1), nil))
	c.completeWith(c.peerAck(n+1, uint32(n+2)), 10)
	c.Attr.AH, c.Attr.Timeout = alt.AltAH, alt.AltTimeout
}

// noMigReq returns a packet with MigReq 0.
func noMigReq(p ib.Packet) ib.Packet { p.BTH.MigReq = new(false); return p }

// expectMigReq exchanges the n-th SENDs and ACKs of both ends. The peer's packets have
// this MigReq bit, and the case fails unless those of the device have it too.
func (c *Conn) expectMigReq(n int, migrated bool) {
	mig := func(p ib.Packet) ib.Packet { p.BTH.MigReq = &migrated; return p }
	c.exchange(mig(c.peerSend(n, 16)), mig(c.deviceAck(n, uint32(n+1))))
	c.ExpectRecv(uint64(n+1), 16)
	c.PostSend(c.QP, c.SendWR(100, 8))
	c.expect(mig(ib.SendOnly(c.DevicePSN(n), nil)))
	c.completeWith(mig(c.peerAck(n, uint32(n+1))), 100)
}

// expectMigState fails the case unless a query returns this migration state.
func (c *Conn) expectMigState(want verbs.MigState) {
	a := c.QueryQP(c.QP)
	c.Check(a.PathMigState == want, fmt.Sprintf("migration state %v", want), "%v", a.PathMigState)
}

// setAddress adds an address to the device's port or, if present is false, removes it. The case
// ends as unsupported if the bench cannot do that.
func (p *Port) setAddress(a netip.Addr, present bool) {
	if p.SetAddress == nil {
		rig.BenchCannot("remove %v from the device", a)
	}
	p.Note("address %v present: %v", a, present)
	p.Must("an address that can be removed and added", p.SetAddress(a, present))
}

// removeAndRestoreAddress removes the only address, which a connection uses, and restores it.
func removeAndRestoreAddress(c *Conn) {
	const absent, present = false, true
	c.expectAccepted(0)

	c.setAddress(c.deviceAddr, absent)
	c.expectPortEvent(verbs.EventGIDChange)
	c.awaitGID(absent)
	_, _ = c.postSend(9) // may fail or not, but the SEND must not be sent or succeed
	c.Send(c.peerSend(1, 16))
	// No connection is left to synchronize with: wait longer than the retransmission timers.
	pkt, sent := c.NextPacket(50 * time.Millisecond)
	c.Check(!sent, "nothing is sent by a port without an address", "%v", pkt)
	c.ExpectNoSuccess()
	c.ToState(c.QP, verbs.QPStateErr)
	c.Sleep(shortWait)
	c.Completions() // discards flushed work

	c.setAddress(c.deviceAddr, present)
	c.expectPortEvent(verbs.EventGIDChange)
	c.awaitGID(present)
	c.connect(Setup{Receives: 1}).expectAccepted(0)
}

// awaitGID fails the case unless the GID table gets a RoCEv2 entry for the device's address or, if
// present is false, loses it.
func (p *Port) awaitGID(present bool) {
	p.awaitCondition(fmt.Sprintf("GID table has %v: %v", p.deviceAddr, present), func() bool {
		return hasRoCEv2GID(p.gidTable(), p.deviceAddr) == present
	})
}

// hasRoCEv2GID reports whether a GID table has a RoCEv2 entry for an address.
func hasRoCEv2GID(table []verbs.GIDEntry, a netip.Addr) bool {
	return slices.ContainsFunc(table, func(e verbs.GIDEntry) bool { return e.GID.Addr() == a && e.Type == verbs.GIDTypeRoCEv2 })
}

// backToRTR moves the queue pair to RESET and INIT, posts a receive with ID 1, and moves the queue
// pair to RTR.
func (c *Conn) backToRTR() {
	c.ToState(c.QP, verbs.QPStateReset)
	c.ToInit(c.QP, 0, 0)
	c.PostRecv(c.QP, 1, c.LocalMem.SGE(0, 64))
	c.ToRTR(c.QP, c.Attr)
}
