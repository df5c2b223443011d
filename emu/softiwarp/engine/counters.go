package engine

import "github.com/fabrictest/fabrictest/verbs"

// Counters are the counters of a NIC. NIC.Counters also returns those of its layers.
type Counters struct {
	Sends, Recvs uint64 // work requests completed
	Messages     uint64 // successful Sends

	Conns         uint64 // connections, of either role
	Established   uint64
	Closed        uint64
	Failed        uint64 // closed connections that failed
	Aborted       uint64 // failed connections that this side aborted
	CloseTimeouts uint64
	DropNoQP      uint64 // segments of a connection without a queue pair
	EmptyWrites   uint64 // empty Writes sent because of Config.EmptyWriteAfter
}

// conn counts a connection that enters state s.
func (c *Counters) conn(s ConnState) {
	switch s {
	case Established:
		c.Established++
	case Closed:
		c.Closed++
	}
}

// Counters returns all counters by name, in a fixed order.
func (n *NIC) Counters() []verbs.Counter {
	c, m := &n.Count, &n.mpa
	return append([]verbs.Counter{
		{Name: "send_requests", Value: c.Sends},
		{Name: "rdma_sends", Value: c.Messages},
		{Name: "rdma_recvs", Value: c.Recvs},
		{Name: "conns", Value: c.Conns},
		{Name: "conns_established", Value: c.Established},
		{Name: "conns_closed", Value: c.Closed},
		{Name: "conns_failed", Value: c.Failed},
		{Name: "conns_aborted", Value: c.Aborted},
		{Name: "close_timeouts", Value: c.CloseTimeouts},
		{Name: "drop_no_qp", Value: c.DropNoQP},
		{Name: "empty_writes", Value: c.EmptyWrites},
		{Name: "cq_overrun", Value: n.CQOverruns},
		{Name: "events_lost", Value: n.EventsLost},
		{Name: "mpa_sent_fpdus", Value: m.FPDUsSent},
		{Name: "mpa_rcvd_fpdus", Value: m.FPDUsReceived},
		{Name: "mpa_sent_octets", Value: m.OctetsSent},
		{Name: "mpa_rcvd_octets", Value: m.OctetsReceived},
		{Name: "mpa_sent_markers", Value: m.MarkersSent},
		{Name: "mpa_rcvd_markers", Value: m.MarkersTaken},
		{Name: "mpa_requests_sent", Value: m.RequestsSent},
		{Name: "mpa_requests_rcvd", Value: m.RequestsTaken},
		{Name: "mpa_accepted", Value: m.Accepted},
		{Name: "mpa_rejected", Value: m.Rejected},
		{Name: "mpa_fallbacks", Value: m.Fallbacks},
		{Name: "mpa_bad_frames", Value: m.BadFrames},
		{Name: "mpa_bad_revisions", Value: m.BadRevisions},
		{Name: "mpa_bad_negotiations", Value: m.BadNegotiations},
		{Name: "mpa_bad_crcs", Value: m.BadCRCs},
		{Name: "mpa_bad_markers", Value: m.BadMarkers},
		{Name: "mpa_truncated", Value: m.Truncated},
		{Name: "mpa_lost", Value: m.Lost},
		{Name: "mpa_timeouts", Value: m.Timeouts},
		{Name: "mpa_ignored_octets", Value: m.OctetsIgnored},
	}, n.layer.Count.List()...)
}
