package engine

import "github.com/fabrictest/fabrictest/verbs"

// Counters are the counters of a NIC. Received counts every datagram; the Drop counters count
// those that had no effect.
type Counters struct {
	Sent, SentBytes         uint64
	Received, ReceivedBytes uint64
	Sends, Recvs            uint64 // work requests completed
	Messages                uint64 // successful Sends

	DropDown      uint64 // the port is down
	DropAddress   uint64 // the destination is not the NIC, or the source is invalid
	DropCRC       uint64
	DropMalformed uint64
	DropQPN       uint64 // no such QP
	DropService   uint64 // UD packet for an RD QP
	DropState     uint64 // the QP is not ready
	DropKey       uint64
	DropNoReceive uint64
	DropSegment   uint64 // inconsistent with other segments of its message
	DropExpired   uint64 // messages whose reassembly timed out or was evicted
	DropRecord    uint64 // segments of Write-Records that could not be recorded
	Records       uint64
	RecordsPart   uint64 // incomplete records

	ErrorsFound      uint64 // segments in error
	ErrorsSent       uint64
	ErrorsSuppressed uint64
	ErrorsReceived   uint64
}

// Counters returns all counters by name, in a fixed order.
func (n *NIC) Counters() []verbs.Counter {
	c, r := &n.Count, &n.rd.Count
	return append([]verbs.Counter{
		{Name: "sent_packets", Value: c.Sent},
		{Name: "sent_bytes", Value: c.SentBytes},
		{Name: "rcvd_packets", Value: c.Received},
		{Name: "rcvd_bytes", Value: c.ReceivedBytes},
		{Name: "send_requests", Value: c.Sends},
		{Name: "rdma_sends", Value: c.Messages},
		{Name: "rdma_recvs", Value: c.Recvs},
		{Name: "drop_down", Value: c.DropDown},
		{Name: "drop_address", Value: c.DropAddress},
		{Name: "drop_crc", Value: c.DropCRC},
		{Name: "drop_malformed", Value: c.DropMalformed},
		{Name: "drop_qpn", Value: c.DropQPN},
		{Name: "drop_service", Value: c.DropService},
		{Name: "drop_state", Value: c.DropState},
		{Name: "drop_key", Value: c.DropKey},
		{Name: "drop_no_receive", Value: c.DropNoReceive},
		{Name: "drop_segment", Value: c.DropSegment},
		{Name: "drop_expired", Value: c.DropExpired},
		{Name: "drop_record", Value: c.DropRecord},
		{Name: "records", Value: c.Records},
		{Name: "records_partial", Value: c.RecordsPart},
		{Name: "errors_found", Value: c.ErrorsFound},
		{Name: "errors_sent", Value: c.ErrorsSent},
		{Name: "errors_suppressed", Value: c.ErrorsSuppressed},
		{Name: "errors_rcvd", Value: c.ErrorsReceived},
		{Name: "cq_overrun", Value: n.CQOverruns},
		{Name: "events_lost", Value: n.EventsLost},
		{Name: "rd_peers", Value: uint64(n.rd.Peers())},
		{Name: "rd_sent_data", Value: r.SentData},
		{Name: "rd_sent_again", Value: r.SentAgain},
		{Name: "rd_sent_acks", Value: r.SentAcks},
		{Name: "rd_sent_challenges", Value: r.SentChallenges},
		{Name: "rd_sent_refusals", Value: r.SentRefusals},
		{Name: "rd_delivered", Value: r.Delivered},
		{Name: "rd_busy", Value: r.Busy},
		{Name: "rd_timeouts", Value: r.Timeouts},
		{Name: "rd_losses", Value: r.LossesSeen},
		{Name: "rd_flows_failed", Value: r.FlowsFailed},
		{Name: "rd_peers_made", Value: r.PeersMade},
		{Name: "rd_peers_idle", Value: r.PeersIdle},
		{Name: "rd_peers_refused", Value: r.PeersRefused},
		{Name: "rd_drop_repeated", Value: r.DropRepeated},
		{Name: "rd_drop_beyond", Value: r.DropBeyond},
		{Name: "rd_drop_store", Value: r.DropStore},
		{Name: "rd_drop_unknown", Value: r.DropUnknown},
		{Name: "rd_drop_unproved", Value: r.DropUnproved},
		{Name: "rd_drop_ack", Value: r.DropAck},
		{Name: "rd_drop_empty", Value: r.DropEmpty},
		{Name: "rd_drop_challenge", Value: r.DropChallenge},
		{Name: "rd_drop_refusal", Value: r.DropRefusal},
		{Name: "rd_drop_reply", Value: r.DropReply},
		{Name: "rd_drop_unclaimed", Value: r.DropUnclaimed},
	}, n.layer.Count.List()...)
}
