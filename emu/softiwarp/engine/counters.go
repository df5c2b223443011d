package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/verbs"
)

// Counters are the counters of a NIC. NIC.Counters also returns those of its layers.
type Counters struct {
	Sends         uint64 `counter:"send_requests"` // work requests completed
	Messages      uint64 `counter:"rdma_sends"`    // successful Sends
	Recvs         uint64 `counter:"rdma_recvs"`    // work requests completed
	Conns         uint64 `counter:"conns"`         // connections, of either role
	Established   uint64 `counter:"conns_established"`
	Closed        uint64 `counter:"conns_closed"`
	Failed        uint64 `counter:"conns_failed"`  // closed connections that failed
	Aborted       uint64 `counter:"conns_aborted"` // failed connections that this side aborted
	CloseTimeouts uint64 `counter:"close_timeouts"`
	DropNoQP      uint64 `counter:"drop_no_qp"`   // segments of a connection without a queue pair
	EmptyWrites   uint64 `counter:"empty_writes"` // empty Writes sent because of Config.EmptyWriteAfter
}

var counterNames = nic.NewCounterNames[Counters]()

// Counters returns all counters by name, in a fixed order.
func (n *NIC) Counters() []verbs.Counter {
	list := append(counterNames.Append(nil, &n.Count),
		verbs.Counter{Name: "cq_overrun", Value: n.CQOverruns},
		verbs.Counter{Name: "events_lost", Value: n.EventsLost})
	return append(mpa.CounterNames.Append(list, &n.mpa), n.layer.Count.List()...)
}
