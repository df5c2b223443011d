package cm

import (
	"testing"
)

// checkInvariants checks that an agent's tables are consistent.
func checkInvariants(t testing.TB, a *Agent) {
	t.Helper()
	pending := make(map[*listener]int)
	remote, qps, lookups, armed := 0, 0, 0, 0
	for id, c := range a.conns {
		if c.id != id || id == 0 || c.state == StateIdle {
			t.Fatalf("connection %#x has the key %#x in state %v", c.id, id, c.state)
		}
		if c.peer.inByRemote {
			remote++
			if a.byRemote[remoteKey{c.peer.guid, c.peer.id}] != c {
				t.Fatalf("connection %#x is not in byRemote", c.id)
			}
		}
		if c.peer.inByQP {
			qps++
			if a.byQP[remoteKey{c.peer.guid, c.peer.qpn}] != c {
				t.Fatalf("connection %#x is not in byQP", c.id)
			}
		}
		if c.state == StateSIDRREQRcvd {
			lookups++
			if a.sidrRequests[sidrKey{c.madRoute.Remote, c.peer.id}] != c {
				t.Fatalf("SIDR request %#x is not in its table", c.id)
			}
		}
		if c.listener != nil {
			pending[c.listener]++
		}
		waits := false
		switch c.state {
		case StateREQSent, StateMRAREQRcvd, StateREPSent, StateMRAREPRcvd, StateDREQSent, StateSIDRREQSent, StateTimeWait:
			waits = true
		}
		isArmed := c.timer.IsSet()
		if isArmed {
			armed++
		}
		if waits != isArmed {
			t.Fatalf("connection %#x in state %v: timer armed is %v", c.id, c.state, isArmed)
		}
	}
	if remote != len(a.byRemote) || qps != len(a.byQP) || lookups != len(a.sidrRequests) || armed != a.timers.Len() {
		t.Fatalf("tables have %d remote IDs, %d queue pairs, %d SIDR requests, %d timers; connections need %d, %d, %d, %d",
			len(a.byRemote), len(a.byQP), len(a.sidrRequests), a.timers.Len(), remote, qps, lookups, armed)
	}
	if len(a.conns) > a.cfg.MaxConns || a.outbox.Len() > a.cfg.MaxOutbox {
		t.Fatalf("%d connections, %d MADs: over the limits", len(a.conns), a.outbox.Len())
	}

	for _, l := range a.listeners {
		if l.pending != pending[l] || l.pending > l.backlog {
			t.Fatalf("listener %d has %d pending requests of %d, want %d", l.id, l.pending, l.backlog, pending[l])
		}
	}
}

// checkEmpty checks that the agent has no state of any connection.
func checkEmpty(t testing.TB, a *Agent) {
	t.Helper()
	checkInvariants(t, a)
	if n := len(a.conns) + len(a.byRemote) + len(a.byQP) + len(a.sidrRequests) + a.timers.Len() + a.outbox.Len() + a.events.Len(); n != 0 {
		t.Fatalf("left: %d connections, %d remote IDs, %d queue pairs, %d SIDR requests, %d timers, %d MADs, %d events",
			len(a.conns), len(a.byRemote), len(a.byQP), len(a.sidrRequests), a.timers.Len(), a.outbox.Len(), a.events.Len())
	}
}
