package engine

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// altPathPeer is a scripted peer with an alternate path: other addresses at both ends,
// another P_Key and another timeout.
type altPathPeer struct {
	*peer
	altHost, altPeer netip.Addr
}

const altTimeout = 9

func eachAltPath(t *testing.T, f func(p altPathPeer)) {
	t.Helper()
	s := setup{
		nic: func(c *Config) {
			c.GIDs = append(c.GIDs, RoCEv2GIDs(c.GIDs[0].GID.Addr().Next().Next().Next())...)
			c.PKeys = []uint16{0xffff, 0x8005}
		},
		attr: func(a *verbs.QPAttr) { a.Timeout, a.RetryCnt = 8, 1 },
	}
	each(t, s, func(p *peer) {
		f(altPathPeer{p, p.h.addr.Next().Next().Next(), p.addr.Next().Next().Next()})
	})
}

// alternate returns the attributes of the alternate path.
func (p altPathPeer) alternate() verbs.QPAttr {
	return verbs.QPAttr{
		AltAH:   verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(p.altPeer), SGIDIndex: 1, HopLimit: 9}},
		AltPort: 1, AltPKeyIndex: 1, AltTimeout: altTimeout, PathMigState: verbs.MigRearm,
	}
}

// arm loads the alternate path and sends a packet with MigReq 0.
func (p altPathPeer) arm() {
	p.Helper()
	must.Do(p, p.q.Modify(p.now, p.alternate(), verbs.QPAttrAltPath|verbs.QPAttrPathMigState))
	p.mig(verbs.MigRearm)
	p.send(wire.OpWriteOnly, 0, p.at(0, 8), data(8), ackReq, noMigReq)
	p.mig(verbs.MigArmed)
	p.expectOnPath(p.addr, false, "ACK 0 msn 1")
}

func (p altPathPeer) mig(want verbs.MigState) {
	p.Helper()
	if got := p.q.Query().PathMigState; got != want {
		p.Fatalf("migration state %d, want %d", got, want)
	}
}

// expectOnPath compares the packets that the NIC sends now, with their path and MigReq bit.
func (p altPathPeer) expectOnPath(to netip.Addr, migReq bool, want ...string) {
	p.Helper()
	from, pkey, hops := p.h.addr, uint16(0xffff), uint8(64)
	if to == p.altPeer {
		from, pkey, hops = p.altHost, 0x8005, 9
	}
	var got []string
	for _, d := range p.drain() {
		var k wire.Packet
		must.Do(p, k.Parse(d.Payload))
		if d.Src.Addr() != from || d.Dst.Addr() != to || k.BTH.PKey != pkey || d.HopLimit != hops || k.BTH.MigReq != migReq {
			p.Errorf("%v to %v, P_Key %#x, hop limit %d, MigReq %v", d.Src, d.Dst, k.BTH.PKey, d.HopLimit, k.BTH.MigReq)
		}
		if !wire.NewICRC(d.Src, d.Dst).Check(0, d.Payload) {
			p.Error("wrong ICRC")
		}
		info, _ := k.BTH.Opcode.Info()
		got = append(got, p.render(&k, info))
	}
	p.compare("sent", got, want)
}

// sendAlong sends a request between two addresses.
func (p altPathPeer) sendAlong(src, dst netip.Addr, k int, edits ...edit) {
	p.Helper()
	p.redeliver(p.build(wire.OpWriteOnly, k, append([]edit{p.at(0, 8), data(8), ackReq}, edits...)...), src, dst)
}

// expectMigrated fails the test unless the QP has migrated and raised one event.
func (p altPathPeer) expectMigrated() {
	p.Helper()
	p.mig(verbs.MigMigrated)
	p.events(verbs.EventPathMig)
	if a := p.q.Query(); a.AH != p.alternate().AltAH || a.PKeyIndex != 1 || a.Timeout != altTimeout {
		p.Errorf("after the migration: %+v", a)
	}
}

// mig/2: Unless the QP is ARMED, MigReq has no effect.
func TestMigReqHasNoEffectWithoutAnAlternatePath(t *testing.T) {
	eachAltPath(t, func(p altPathPeer) {
		for k, m := range []edit{migReq, noMigReq, migReq, noMigReq} {
			p.send(wire.OpWriteOnly, k, p.at(0, 8), data(8), ackReq, m)
			if n := len(p.drain()); n != 1 {
				p.Errorf("%d answers", n)
			}
		}
		must.Do(p, p.q.Modify(p.now, p.alternate(), verbs.QPAttrAltPath))
		p.sendAlong(p.altPeer, p.altHost, 4, migReq, withPKey(0x8005))
		p.sendAlong(p.altPeer, p.altHost, 4, migReq)
		p.expectOnPath(p.addr, true)
		p.send(wire.OpWriteOnly, 4, p.at(0, 8), data(8), ackReq, migReq)
		p.expectOnPath(p.addr, true, "ACK 4 msn 5")
		p.mig(verbs.MigMigrated)
		p.events()
	})
}

// mig/1: A packet with MigReq 1 on the alternate path migrates an ARMED QP to its
// addresses, P_Key and timeout, and is executed there.
func TestMigReqMigratesArmedQP(t *testing.T) {
	eachAltPath(t, func(p altPathPeer) {
		p.arm()
		p.send(wire.OpWriteOnly, 1, p.at(0, 8), data(8), ackReq, noMigReq)
		p.expectOnPath(p.addr, false, "ACK 1 msn 2")
		p.sendAlong(p.altPeer, p.altHost, 2, withPKey(0x8005)) // MigReq 0: no migration
		p.expectOnPath(p.addr, false)
		p.events()
		p.sendAlong(p.altPeer, p.altHost, 2, migReq, withPKey(0x8005))
		p.expectOnPath(p.altPeer, true, "ACK 2 msn 3")
		p.expectMigrated()

		p.send(wire.OpWriteOnly, 3, p.at(0, 8), data(8), ackReq) // on the old path
		p.expectOnPath(p.altPeer, true)
		p.post(1, verbs.OpSend, 4)
		p.expectOnPath(p.altPeer, true, "SEND_ONLY 0 4B ackreq")
		p.wait(4096 << altTimeout)
		p.expectOnPath(p.altPeer, true, "SEND_ONLY 0 4B ackreq")
		p.events()
	})
}

// mig/1: A packet with MigReq 1 on another path is dropped, and the QP raises one event.
func TestMigrationToUnknownPathIsRejected(t *testing.T) {
	eachAltPath(t, func(p altPathPeer) {
		p.arm()
		for range 2 {
			p.sendAlong(p.addr, p.h.addr, 1, migReq, withPKey(0x8005))
		}
		p.sendAlong(p.altPeer, p.h.addr, 1, migReq, withPKey(0x8005)) // one address of each path
		p.sendAlong(p.altPeer, p.altHost, 1, migReq)                  // the P_Key of the first path
		p.expectOnPath(p.addr, false)
		p.mig(verbs.MigArmed)
		p.events(verbs.EventPathMigErr)
		must.Do(p, p.q.Modify(p.now, p.alternate(), verbs.QPAttrAltPath))
		p.sendAlong(p.addr, p.h.addr, 1, migReq, withPKey(0x8005))
		p.events(verbs.EventPathMigErr) // one event for each path
	})
}

// mig/1: An ARMED QP migrates when its retries are exhausted, and its retry counter is restored.
func TestArmedQPMigratesWhenRetriesAreExhausted(t *testing.T) {
	const T, altT = 4096 << 8, 4096 << altTimeout
	eachAltPath(t, func(p altPathPeer) {
		p.arm()
		p.post(1, verbs.OpSend, 4)
		p.expectOnPath(p.addr, false, "SEND_ONLY 0 4B ackreq")
		p.wait(T)
		p.expectOnPath(p.addr, false, "SEND_ONLY 0 4B ackreq")
		p.silence(T - 1)
		p.events()
		p.wait(1)
		p.expectOnPath(p.altPeer, true, "SEND_ONLY 0 4B ackreq")
		p.expectMigrated()
		p.wait(altT)
		p.expectOnPath(p.altPeer, true, "SEND_ONLY 0 4B ackreq")
		p.silence(altT)
		p.wcs("1 RETRY_EXC_ERR")
		p.state(verbs.QPStateErr)
		p.events()
	})
}

// mig/1: Modify to MIGRATED migrates an ARMED QP; outstanding requests continue on the new path.
func TestModifyMigratesArmedQP(t *testing.T) {
	eachAltPath(t, func(p altPathPeer) {
		p.arm()
		p.post(1, verbs.OpSend, 4)
		p.expectOnPath(p.addr, false, "SEND_ONLY 0 4B ackreq")
		must.Do(p, p.q.Modify(p.now, verbs.QPAttr{PathMigState: verbs.MigMigrated}, verbs.QPAttrPathMigState))
		p.expectMigrated()
		p.expectOnPath(p.altPeer, true)
		ack := p.build(wire.OpAcknowledge, 0, withPKey(0x8005))
		p.redeliver(ack, p.altPeer, p.altHost)
		p.wcs("1 SUCCESS SEND")
		p.silence(time.Second)

		// REARM fails: the QP has no alternate path now.
		expectUnchanged(p.T, p.q, func() {
			err := p.q.Modify(p.now, verbs.QPAttr{PathMigState: verbs.MigRearm}, verbs.QPAttrPathMigState)
			if !errors.Is(err, verbs.ErrInvalid) {
				p.Errorf("rearmed without a path: %v", err)
			}
		})
	})
}

// mig/1: REARM needs an alternate path; ARMED cannot be requested. SQD accepts the
// same states as RTS.
func TestModifyMigrationStates(t *testing.T) {
	eachAltPath(t, func(p altPathPeer) {
		modify := func(s verbs.MigState, mask verbs.QPAttrMask) error {
			a := p.alternate()
			a.PathMigState = s
			return p.q.Modify(p.now, a, mask|verbs.QPAttrPathMigState)
		}
		expectUnchanged(p.T, p.q, func() {
			for _, err := range []error{modify(verbs.MigRearm, 0), modify(verbs.MigArmed, 0), modify(verbs.MigArmed, verbs.QPAttrAltPath), modify(3, 0)} {
				if !errors.Is(err, verbs.ErrInvalid) {
					p.Errorf("got %v", err)
				}
			}
		})
		p.enter(verbs.QPStateSQD)
		must.Do(p, modify(verbs.MigRearm, verbs.QPAttrAltPath))
		p.mig(verbs.MigRearm)
		p.enter(verbs.QPStateRTS)
		p.send(wire.OpWriteOnly, 0, p.at(0, 8), data(8), noMigReq)
		p.mig(verbs.MigArmed)
		must.Fail(p, "from ARMED to REARM", modify(verbs.MigRearm, 0), verbs.ErrInvalid)
		p.enter(verbs.QPStateReset)
		p.mig(verbs.MigMigrated)
		p.events()
	})
}

// mig/1, ecn/5: A CNP always has MigReq 0. It neither arms nor migrates a QP.
func TestCNPDoesNotArmQP(t *testing.T) {
	eachAltPath(t, func(p altPathPeer) {
		must.Do(p, p.q.Modify(p.now, p.alternate(), verbs.QPAttrAltPath|verbs.QPAttrPathMigState))
		p.cnp()
		p.mig(verbs.MigRearm)
		p.arm()
		p.redeliver(p.build(wire.OpAcknowledge, 0, asCNP, migReq, withPKey(0x8005)), p.altPeer, p.altHost)
		p.mig(verbs.MigArmed)
		p.deliverEdited(p.build(wire.OpWriteOnly, 1, p.at(0, 8), data(8), noMigReq), marked)
		for _, d := range p.drain() {
			if d.Dst.Addr() != p.addr || d.ECNBits() != link.NotECT {
				p.Errorf("a CNP to %v, class %#x", d.Dst, d.TClass)
			}
		}
		p.events()
	})
}
